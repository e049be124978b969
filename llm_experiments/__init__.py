"""Diagnostics and training of real language models: `python -m llm_experiments`, from a checkout."""
