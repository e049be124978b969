"""Methods of other papers, one a file, each on the small interface of `kaestat.baselines.base.Baseline`."""
