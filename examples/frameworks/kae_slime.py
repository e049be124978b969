"""Baselines of kaestat in slime, read and tested at commit 624b824 of its main branch.

Copy this file onto slime's Python path, choose the method below, and train with::

    --advantage-estimator grpo
    --custom-reward-post-process-path kae_slime.advantages
    --rollout-function-path kae_slime.generate_rollout
    --data-source-path kae_slime.DataSource

slime calls `advantages` once per rollout, in the process that also holds the data source, and its GRPO loss copies the
numbers that it returns to the tokens. One rollout is one step: a completion counts at the rollout that trains on it,
also under train_async.py. The history is saved beside the data source's own state.

Leave --normalize-advantages off. Leave --dynamic-sampling-filter-path off too: the history would not see the dropped
groups.
"""

from slime.rollout.data_source import RolloutDataSourceWithBuffer
from slime.rollout.sglang_rollout import generate_rollout as slime_rollout

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession

ID_KEY = None  # key of sample.metadata with the prompt's id; None identifies prompts by a hash of their text
session = TrainerSession(AdvantageEstimator())
rollout = None  # the number of the current rollout, which slime does not pass to `advantages`
states = {}  # after each of the last rollouts: train_async.py scores one more before it saves the last one


def generate_rollout(args, rollout_id, data_source, evaluation=False):
    """slime's rollout function; it takes note of the rollout's number, and logs the metrics of the step before."""
    global rollout
    output = slime_rollout(args, rollout_id, data_source, evaluation=evaluation)
    if not evaluation:
        rollout = rollout_id
        output.metrics = {**(output.metrics or {}), **session.metrics}
    return output


def advantages(args, samples):
    """Raw rewards and advantages of a rollout's completions; those with remove_sample do not count."""
    if args.advantage_estimator == "ppo":
        raise ValueError("--advantage-estimator ppo would take the advantages for rewards; choose grpo.")
    if ID_KEY is None and any(sample.multimodal_inputs for sample in samples):
        raise ValueError("prompts with images need an id of their own: put it into the metadata and set ID_KEY.")
    names = [sample.index if sample.rollout_id is None else sample.rollout_id for sample in samples]
    if len(set(names)) < len(names):
        raise ValueError("several samples are segments of one completion; give each completion one sample here.")
    rewards = [sample.get_reward_value(args) for sample in samples]
    found = session.advantages(
        rewards,
        rollout,
        prompts=[sample.prompt for sample in samples],
        ids=None if ID_KEY is None else [sample.metadata.get(ID_KEY) for sample in samples],
        groups=[sample.group_index for sample in samples],
        mask=[not sample.remove_sample for sample in samples],
    )
    states[rollout] = session.state_dict()
    for old in list(states)[:-3]:
        del states[old]
    return rewards, found.tolist()


class DataSource(RolloutDataSourceWithBuffer):
    """slime's data source, which also saves and restores the history."""

    def save(self, rollout_id):
        """Save the history as of this rollout, and the data source."""
        session.save(f"{self.args.save}/rollout/kaestat_{rollout_id}", state=states.get(rollout_id))
        super().save(rollout_id)

    def load(self, rollout_id=None):
        """Restore both; a run that resumes without a history is refused."""
        super().load(rollout_id)
        if self.args.load is not None and rollout_id is not None and rollout_id >= 0:
            session.load(f"{self.args.load}/rollout/kaestat_{rollout_id}")
