"""`AdvantageEstimator`: it turns samples into advantages, and keeps the state between steps."""
