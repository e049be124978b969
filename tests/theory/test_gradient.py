"""Theorem 2's identity against enumeration of every sequence of actions and rewards of a tiny bandit."""

import itertools

import numpy as np
import pytest

from kaestat import Groups, Visits, make_baseline
from kaestat.theory import excess_gradient_mse, gradient_mse_reduction, linear_error
from simulations.bandits.softmax import SoftmaxBandit

G, PAST_COUNT = 2, 2
PAST_VALUE = np.array([0.15, 0.9])  # far from the current values, so that the estimates are biased
THETA = np.array([0.3, -0.5, 0.8])


@pytest.fixture(scope="module")
def bandit() -> SoftmaxBandit:
    """Two prompts, three actions, rewards at random given the action; scores and rewards are correlated."""
    rng = np.random.default_rng(3)
    return SoftmaxBandit(rng.normal(size=(2, 3, 3)), rng.uniform(0.1, 0.9, size=(2, 3)))


def outcomes(bandit: SoftmaxBandit, prompts: tuple[int, ...]):
    """Actions and rewards (O, B, G), past reward sums (O, B) and probabilities (O,) of everything that can happen."""
    policy = bandit.policy(THETA)
    one = [
        [
            (y, z, policy[x, y] * (bandit.success[x, y] if z else 1 - bandit.success[x, y]))
            for y in range(3)
            for z in (0, 1)
        ]
        for x in prompts
    ]
    past = [[((1 - p) ** 2, 0), (2 * p * (1 - p), 1), (p * p, 2)] for p in PAST_VALUE[list(prompts)]]
    actions, rewards, totals, probability = [], [], [], []
    for drawn in itertools.product(*(column for column in one for _ in range(G)), *past):
        now, before = drawn[: len(prompts) * G], drawn[len(prompts) * G :]
        actions.append([y for y, _, _ in now])
        rewards.append([z for _, z, _ in now])
        totals.append([total for _, total in before])
        probability.append(np.prod([p for _, _, p in now]) * np.prod([p for p, _ in before]))
    shape = (-1, len(prompts), G)
    return (
        np.array(actions).reshape(shape),
        np.array(rewards, dtype=float).reshape(shape),
        np.array(totals, dtype=float),
        np.array(probability),
    )


def exact_gradient_mse(bandit: SoftmaxBandit, batch: int, estimator: str) -> float:
    """``E ||ghat - grad J||^2``, over the batches as well."""
    batches = list(itertools.permutations(range(2), batch))
    scores, gradient, errors = bandit.scores(THETA), bandit.gradient(THETA), []
    for prompts in batches:
        action, reward, total, probability = outcomes(bandit, prompts)
        assert probability.sum() == pytest.approx(1)
        values = bandit.values(THETA)[list(prompts)][:, None]
        if estimator != "oracle":
            past = total[..., None]
            visits = Visits(lag=np.ones_like(past), count=np.full_like(past, PAST_COUNT), total=past, total_sq=past)
            extra = {"bandwidth": 3} if estimator == "kae" else {}
            values = make_baseline(estimator, **extra).leave_one_out().values(Groups(reward), visits, step=1)
        score = scores[np.array(prompts)[:, None], action]
        estimate = ((reward - values)[..., None] * score).mean(axis=(1, 2))
        errors.append(probability @ ((estimate - gradient) ** 2).sum(axis=-1))
    return float(np.mean(errors))


def moments(bandit: SoftmaxBandit) -> dict[str, np.ndarray]:
    """Of each prompt: ``E[W]``, ``Cov(W, Z)`` and the gradient of its value."""
    policy, value = bandit.policy(THETA), bandit.values(THETA)
    norm2 = (bandit.scores(THETA) ** 2).sum(axis=-1)
    mean = (policy * norm2).sum(axis=1)
    return {
        "norm2": mean,
        "covariance": (policy * norm2 * bandit.success).sum(axis=1) - mean * value,
        "gradient": bandit.prompt_gradients(THETA),
    }


def within_prompt_terms(bandit: SoftmaxBandit, estimator: str) -> dict:
    """What `excess_gradient_mse` wants of KAE (bandwidth 3, one visit at lag 1) or of GRPO's leave-one-out mean."""
    past, own = (PAST_COUNT * 4 / 3, 2.0) if estimator == "kae" else (0.0, 1.0)
    mass, value = past + own * (G - 1), bandit.values(THETA)
    error = linear_error(
        np.array([past, own]) / mass,
        np.stack([PAST_VALUE, value], axis=1),
        np.stack([PAST_VALUE * (1 - PAST_VALUE) / PAST_COUNT, value * (1 - value)], axis=1),
        target=value,
    )
    known = moments(bandit)
    return {
        "value_mse": error.mse,
        "score_norm2": known["norm2"],
        "bias": error.bias,
        "covariance": known["covariance"],
        "own_derivative": own / mass,
        "value_gradient_norm2": (known["gradient"] ** 2).sum(axis=1),
    }


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("estimator", ["kae", "rloo"])
def test_the_identity_gives_the_enumerated_excess_of_estimators_within_prompts(bandit, estimator, batch):
    excess = exact_gradient_mse(bandit, batch, estimator) - exact_gradient_mse(bandit, batch, "oracle")
    terms = within_prompt_terms(bandit, estimator)
    assert excess_gradient_mse(**terms, batch=batch, group_size=G) == pytest.approx(excess, rel=1e-9)


def test_the_identity_gives_the_enumerated_excess_of_the_batch_mean(bandit):
    """REINFORCE++, leave-one-out: other prompts' rewards enter, and pairs of different prompts have a cross term."""
    n, value, known = 2 * G, bandit.values(THETA), moments(bandit)
    weights = np.full((n, n), 1 / (n - 1))
    prompt = np.repeat([0, 1], G)
    variance, bias = np.empty(2), np.empty(2)
    for x in (0, 1):
        others = np.delete(prompt, np.flatnonzero(prompt == x)[0])
        error = linear_error(np.full(n - 1, 1 / (n - 1)), value[others], (value * (1 - value))[others], target=value[x])
        variance[x], bias[x] = error.variance, error.bias
    expected = excess_gradient_mse(
        bias**2 + variance, known["norm2"], batch=2, group_size=G, bias=bias, covariance=known["covariance"]
    )
    gradient = known["gradient"][prompt]
    expected += np.sum(weights * weights.T * (1 - np.eye(n)) * (gradient @ gradient.T)) / n**2
    excess = exact_gradient_mse(bandit, 2, "reinforce++") - exact_gradient_mse(bandit, 2, "oracle")
    assert expected == pytest.approx(excess, rel=1e-9)


def test_table_1_of_the_paper_predicts_the_percentages_of_table_2():
    """Reward variances from GRPO's row; the oracle's noise, 1 / N_oracle of them, taken off (N_oracle = 56)."""
    value_mse = {  # REINFORCE++, GRPO, KAE, x 1000; then the printed reductions of the gradient MSE
        "math": ([78.8, 19.4, 5.80, 32.61, 7.71], [89.2, 8.62, 2.67, 62.37, 8.18], [71.9, 5.07, 1.45, 65.40, 8.53]),
        "gsm8k": ([73.2, 15.5, 4.13, 41.57, 8.14], [30.7, 5.65, 1.77, 42.04, 7.24], [30.9, 2.50, 0.91, 61.73, 5.39]),
    }
    for reinforce, grpo, kae, versus_reinforce, versus_grpo in (row for rows in value_mse.values() for row in rows):
        variance = grpo / (1 / 7 + 1 / 56)
        noise = variance / 56
        assert abs(gradient_mse_reduction(kae - noise, reinforce - noise, variance) - versus_reinforce) < 6
        assert abs(gradient_mse_reduction(kae - noise, grpo - noise, variance) - versus_grpo) < 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: excess_gradient_mse(0.1, 1.0, batch=0, group_size=2), "batch"),
        (lambda: excess_gradient_mse(np.ones(2), np.ones(3), batch=1, group_size=2), r"score_norm2 \(3,\)"),
        (lambda: gradient_mse_reduction(0.1, 0.0, 0.0), "reward_variance [+] other_value_mse must be positive"),
    ],
)
def test_sizes_out_of_range_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
