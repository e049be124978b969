"""Following a run during training: new log entries update the state at constant cost."""

from kaestat.watch.feed import Feed
from kaestat.watch.reading import Reading
from kaestat.watch.run_monitor import RunMonitor
from kaestat.watch.summary import MethodFigures, Recent, RunSummary

__all__ = ["Feed", "MethodFigures", "Reading", "Recent", "RunMonitor", "RunSummary"]
