"""The value and gradient diagnostics of a language model at the checkpoints of a run."""
