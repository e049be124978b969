"""Speed and memory of kaestat, one script per claim: ``python -m benchmarks``, or one of them alone, such as
``python -m benchmarks.advantage_step``."""

BENCHMARKS = (
    "advantage_step",
    "untuned_step",
    "default_step",
    "array_formula",
    "risk_path",
    "analyze",
    "watch_step",
    "history_memory",
    "import_time",
    "state_file",
    "late_rewards",
    "sampling",
    "simulation_throughput",
    "gradient_gram",
    "score_norms",
    "stacked_runs",
)
