"""Figure and tables of studies of policies: what learns more from the same number of completions."""
