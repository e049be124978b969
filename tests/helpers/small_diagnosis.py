"""A diagnosis of a small model made in the test, in seconds, and commands with a configuration."""

import pytest
import yaml

from llm_experiments import cli

CONFIG = {
    "name": "smoke",
    "seed": 5,
    "model": {"name": "tiny", "chat": False, "pretraining": {"steps": 30, "batch_size": 64, "learning_rate": 4e-3}},
    "task": {"name": "arithmetic", "n_prompts": 4, "options": {"kinds": ["add-1"], "style": "bare"}},
    "sampling": {"temperature": 1.0, "max_new_tokens": 3, "batch_size": 64},
    "training": {"method": "kae:bandwidth=10", "group_size": 4, "learning_rate": 1e-3},
    "diagnostic": {
        "steps": [3],
        "history": 2,
        "group_size": 4,
        "n_oracle": 12,
        "n_estimation": 4,
        "n_history": 4,
        "repeats": 10,
        "n_boot": 50,
    },
    "gradient": {"parameters": "final_block", "repeats": 10},
}


def call(command, folder, config, *arguments, name="config"):
    """Exit code of a command with this configuration, all of whose files lie in the folder."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    options = [command, "--config", str(path), "--runs", str(folder / "runs"), "--results", str(folder / "results")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["llm_experiments", *options, *arguments])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
    return exit_.value.code
