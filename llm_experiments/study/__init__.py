"""Which design learns more from the same number of completions: studies over many seeds and base models."""
