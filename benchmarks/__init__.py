"""Speed and memory of kaestat, one script per claim; see ``python -m benchmarks --help``."""
