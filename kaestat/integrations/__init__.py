"""The estimators inside trainers of other projects: one module per framework, and only that module imports it.

Nothing here is imported by ``import kaestat``. Every adapter wraps a `kaestat.AdvantageEstimator`, adds no formula of
its own, and passes the checks of `kaestat.integrations.shared.conformance`. What they share imports no framework:
`session` (what every adapter calls), `prompt_ids` (names of prompts, and a watch over them), `metrics` (what is logged)
and `conformance`. An adapter's first lines are a table of what is its trainer's own.
"""
