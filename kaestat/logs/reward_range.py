"""The range of a log's rewards, for methods whose parameters assume rewards in [0, 1]."""

from kaestat.logs.reward_log import RewardLog


def reward_range(log: RewardLog) -> tuple[float, float]:
    """Lowest and highest reward if there are two distinct rewards, or some outside [0, 1]; else 0 and 1.

    With 0 and 1 no mapping is needed. Rewards that are all equal and outside [0, 1] get a range that contains them
    and [0, 1].
    """
    reward = log.prompt_units.reward
    low, high = float(reward.min()), float(reward.max())
    two = low < high and bool(((reward == low) | (reward == high)).all())
    beyond = low < high and (low < 0 or high > 1)
    return (low, high) if two or beyond else (min(low, 0.0), max(high, 1.0))
