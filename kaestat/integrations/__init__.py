"""The estimators inside TRL and verl, and what adapters and recipes for other trainers share.

Nothing here is imported by ``import kaestat``. An adapter wraps a `kaestat.AdvantageEstimator`, adds no formula of its
own, and passes the checks of `kaestat.integrations.shared.conformance`. `shared` imports no framework: an adapter calls
its `session`. `gradient_norms`, `row_norms` and `adam_units` need PyTorch alone: they compute squared norms of
completions' gradients, in a loop of your own too.
"""
