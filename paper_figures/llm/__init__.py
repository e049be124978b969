"""Tables and figures of diagnostics of language models: ``python -m paper_figures.results results/NAME``."""
