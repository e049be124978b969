"""open_instruct/data_loader.py (commit e6c3044 of allenai/open-instruct), the lines that the recipe's diffs touch.

Text and no module: the tests apply the page's diffs to it. What stands between these lines there is left out.
"""

DATA_LOADER = """
import numpy as np

from open_instruct import data_types, padding_free_collator, utils


class DataPreparationActor:
    def _data_preparation_loop(self, batches):
        for batch in batches:
            scores = np.array(batch.scores)
            scores_per_prompt = scores.reshape(-1, self.config.num_samples_per_prompt_rollout)
            mean_grouped_rewards = scores_per_prompt.mean(axis=-1)
            mean_grouped_rewards = np.repeat(mean_grouped_rewards, self.config.num_samples_per_prompt_rollout, axis=0)
            std_grouped_rewards = scores_per_prompt.std(axis=-1)
            std_grouped_rewards = np.repeat(std_grouped_rewards, self.config.num_samples_per_prompt_rollout, axis=0)

            if self.config.advantage_normalization_type == "standard":
                advantages = (scores - mean_grouped_rewards) / (std_grouped_rewards + 1e-8)
            elif self.config.advantage_normalization_type == "centered":
                advantages = scores - mean_grouped_rewards
            else:
                raise ValueError(f"Invalid advantage normalization type: {self.config.advantage_normalization_type}")

            self.prepared_data[self.training_step] = advantages
            self.training_step += 1

    def get_state(self) -> dict:
        return {
            "training_step": self.training_step,
            "last_consumed_step": self._last_consumed_step,
            "iter_dataloader_state": self.iter_dataloader.state_dict(),
        }

    def set_state(self, state: dict):
        if self._prep_future is not None:
            raise RuntimeError("Cannot update DataPreparationActor state after preparation has started")
        self.iter_dataloader.load_state_dict(state["iter_dataloader_state"])

        self._last_consumed_step = state.get("last_consumed_step", state["training_step"] - 1)
        self.training_step = self._last_consumed_step + 1
"""
