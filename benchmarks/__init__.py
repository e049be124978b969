"""Speed of kaestat, one module per claim: ``python -m benchmarks``, or some of them alone, such as
``python -m benchmarks step``."""

BENCHMARKS = ("step", "analyze", "state_file")
