"""One call of an estimator: its samples are grouped and served, in strict order or in any order."""
