"""The estimators inside trainers of other projects: one module or package for each, and only it imports its trainer.

Nothing here is imported by ``import kaestat``. Every adapter wraps a `kaestat.AdvantageEstimator`, adds no formula of
its own, and passes the checks of `kaestat.integrations.shared.conformance`. What they share imports no framework:
`session` (what every adapter calls), `prompt_ids` (names of prompts, and a watch over them), `metrics` (what is logged)
and `conformance`. `gradient_norms`, `row_norms` and `adam_units` need PyTorch alone: they compute
squared norms of completions' gradients, in a loop of your own too. An adapter's first lines are a table of what is its
trainer's own.
"""
