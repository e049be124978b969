"""Records for histories under test."""

LAST_STEP = 2**31 - 2  # the step after it still fits 32 bits


def record(history, keys, step, total=1.0):
    history.record(keys, step=step, count=[2] * len(keys), total=[total] * len(keys), total_sq=[total] * len(keys))


def seen(history, key, step):
    """(lag, count, total) of the visits of one prompt, oldest first."""
    visits = history.visits([key], step)
    rows = zip(visits.lag[0], visits.count[0], visits.total[0], strict=True)
    return [(int(lag), int(count), total) for lag, count, total in rows if count > 0]
