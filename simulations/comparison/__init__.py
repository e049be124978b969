"""Every method on one number: a real log thinned to fewer completions, simulated paths, and weights that matter."""
