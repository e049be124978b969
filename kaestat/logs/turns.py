"""Later turns of a rollout that a log has as completions of their own, with the conversation so far as their prompt."""

import numpy as np

from kaestat.core.spelling import named, spelled
from kaestat.logs.columns import warn
from kaestat.logs.reward_log import RewardLog


def with_turns(log: RewardLog, source: object, turns: str) -> RewardLog:
    """The log without the rows of later turns if ``turns`` is "merge"; else as it is, with a warning about them."""
    if not isinstance(turns, str) or turns not in ("keep", "merge"):
        raise ValueError(f'{named("turns")} must be "keep" or "merge", got {turns!r}.')
    first = _earlier_turns(log)
    prompt, step, reward = (log.arrays[name] for name in ("prompt", "step", "reward"))
    root = first[prompt]
    later = root != prompt
    if not later.any():
        return log
    if turns == "keep":
        warn(
            f"{source}: {(first != np.arange(len(first))).sum():,} of {len(first):,} prompts continue another prompt "
            f"of the same steps, as later turns of a rollout do. If each of these {later.sum():,} rows repeats its "
            f"rollout's reward, read the log by {spelled('turns', 'merge')}: a rollout is then one completion."
        )
        return log
    before = np.isin(prompt, root[later])
    earlier, repeated = (
        set(zip(*(column[rows].tolist() for column in (own, step, reward)), strict=True))
        for own, rows in ((prompt, before), (root, later))
    )
    if odd := repeated - earlier:
        raise ValueError(
            f"{source}: {named('turns')}: at step {min(odd)[1]} a later turn has the reward {min(odd)[2]:g}, which no "
            "earlier turn has. Write one row per rollout, with the reward of the whole."
        )
    return log.subset(first == np.arange(len(first)))


def _earlier_turns(log: RewardLog) -> np.ndarray:
    """For each prompt the one that it continues, from its first words on and at each of its steps, else itself."""
    texts = {str(prompt).removesuffix("]"): code for code, prompt in enumerate(log.prompts)}  # of messages in JSON
    before = np.arange(len(log.prompts))
    begun: list[str] = []  # each continues the one before it
    for text in sorted(texts):
        while begun and not text.startswith(begun[-1]):
            begun.pop()
        if begun and _goes_on(begun[-1], text):
            before[texts[text]] = texts[begun[-1]]
        begun.append(text)
    if (before == np.arange(len(before))).all():
        return before
    units = log.prompt_units
    n_steps = int(units.visit_step.max()) + 1
    visited = units.visit_prompt * n_steps + units.visit_step
    with_first = np.isin(before[units.visit_prompt] * n_steps + units.visit_step, visited)
    alone = np.unique(units.visit_prompt[~with_first])  # at a step without the other
    before[alone] = alone
    return before


def _goes_on(text: str, longer: str) -> bool:
    """Whether a text goes on by words: not as an id such as q1 in q10."""
    added = longer[len(text) :]
    return any(map(str.isspace, added)) and not (text[-1:].isalnum() and added[:1].isalnum())
