"""Tables and figures of training runs: ``python -m paper_figures.results results/training/NAME``."""
