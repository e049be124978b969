"""Following a run while it trains: what is new in its log, added to what is known, at a cost that does not grow."""

from kaestat.watch.feed import Feed
from kaestat.watch.reading import Reading
from kaestat.watch.run_monitor import RunMonitor
from kaestat.watch.summary import MethodFigures, Recent, RunSummary

__all__ = ["Feed", "MethodFigures", "Reading", "Recent", "RunMonitor", "RunSummary"]
