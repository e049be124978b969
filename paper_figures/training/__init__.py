"""Tables and figures of training runs: ``python -m paper_figures.training results/training/NAME``."""
