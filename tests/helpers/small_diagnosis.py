"""A diagnosis of a small model made in the test, in seconds."""

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
