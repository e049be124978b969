"""Noise and signal against double loops, and without bias where they are known."""

import numpy as np
import pytest
import torch

from llm_experiments.study.noise.measures import as_adam, cosine, noise_and_signal


def test_noise_and_signal_are_what_double_loops_give():
    draws = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    rows = draws.double().numpy()
    noise = sum(float(np.var(rows[:, column], ddof=1)) for column in range(5))
    pairs = [rows[r] @ rows[s] for r in range(7) for s in range(7) if r != s]
    assert noise_and_signal(draws) == pytest.approx((noise, np.mean(pairs)), rel=1e-5)


def test_signal_is_not_taken_for_larger_than_it_is():
    """Thirty times as much noise as signal, four draws: the plain squared norm of their mean is 8.5 times too large."""
    generator = torch.Generator().manual_seed(1)
    mean = torch.full((30,), 30**-0.5)
    draws = mean + torch.randn(5_000, 4, 30, generator=generator)
    found = np.array([noise_and_signal(each) for each in draws])
    se = found.std(0) / np.sqrt(len(found))
    assert abs(found[:, 0].mean() - 30) < 4 * se[0] and abs(found[:, 1].mean() - 1) < 4 * se[1] < 0.3
    assert draws.mean(1).square().sum(1).mean() > 8


def test_the_cosine_is_that_of_the_means():
    one, other = torch.zeros(4), torch.zeros(4)
    one[0], other[:2] = 2.0, 1.0
    generator = torch.Generator().manual_seed(2)
    draws = [mean + torch.randn(200_000, 4, generator=generator) for mean in (one, other)]
    assert cosine(*draws) == pytest.approx(0.5**0.5, abs=0.02)


def test_adams_units_do_not_depend_on_scales():
    draws = torch.randn(50, 4, generator=torch.Generator().manual_seed(3)) + 0.5
    draws[:, 3] = 0.0
    scaled = as_adam(draws * torch.tensor([1.0, 100.0, 0.01, 1.0]))
    torch.testing.assert_close(scaled, as_adam(draws))
    torch.testing.assert_close(scaled.square().mean(0), torch.tensor([1.0, 1.0, 1.0, 0.0]))
