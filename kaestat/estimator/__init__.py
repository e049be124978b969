"""`AdvantageEstimator`: samples in, advantages out, and the state between."""
