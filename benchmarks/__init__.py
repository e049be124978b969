"""Speed and memory of kaestat, one module per claim: ``python -m benchmarks``, or some of them alone, such as
``python -m benchmarks advantage_step``."""

BENCHMARKS = (
    "advantage_step",
    "default_step",
    "analyze",
    "history_memory",
    "state_file",
    "late_rewards",
    "sampling",
    "score_norms",
)
