"""Several runs of one small model as one batched computation, for studies that need many seeds."""
