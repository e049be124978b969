"""Training on TRL: its trainer with our baselines, its data, tests along the way, memory and time."""
