"""Inputs of torch tensors."""

from dataclasses import replace

import numpy as np
import torch


def as_torch(container):
    """The same groups or visits, of tensors."""
    arrays = {name: torch.from_numpy(value) for name, value in vars(container).items() if isinstance(value, np.ndarray)}
    return replace(container, **arrays)
