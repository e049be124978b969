"""The estimators inside other people's trainers: one module per framework, which alone imports it.

Nothing here is imported by ``import kaestat``. Every adapter wraps an `kaestat.AdvantageEstimator`, adds no formula of
its own, and passes the checks of `kaestat.integrations.conformance`.
"""
