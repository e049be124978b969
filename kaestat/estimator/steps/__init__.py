"""One call of an estimator: its samples grouped and served, in strict order or in any."""
