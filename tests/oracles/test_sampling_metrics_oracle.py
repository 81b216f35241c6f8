import itertools
import math

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap, norm, t

from rangeline.evaluation.comparison import paired_difference
from rangeline.evaluation.sampling_metrics import clustered_interval, pass_at_k


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_equals_counting_all_subsets(n):
    """pass@k is the share of k-subsets of the n completions that hold a right one."""
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pytest.approx(sum(map(any, subsets)) / len(subsets), rel=1e-14) == pass_at_k(n, c, k)


def test_pass_at_k_equals_the_published_product():
    """Chen et al. compute 1 - prod(1 - k / i) over i from n - c + 1 to n."""
    for n, c, k in [(10, 3, 4), (200, 13, 100), (64, 64, 8), (64, 1, 63)]:
        published = 1.0 if n - c < k else 1 - math.prod(1 - k / i for i in range(n - c + 1, n + 1))
        assert pytest.approx(published, rel=1e-12) == pass_at_k(n, c, k)


def test_interval_equals_scipy_percentile_bootstrap_at_the_widened_level():
    """Up to resampling error, the interval is scipy's percentile bootstrap over prompts."""
    value_P = np.random.default_rng(5).beta(0.5, 1.0, size=12)
    level = 1 - 2 * norm.cdf(math.sqrt(12 / 11) * t.ppf(0.025, 11))
    peer = bootstrap(
        (value_P,), np.mean, confidence_level=level, n_resamples=20_000, method="percentile", rng=1
    ).confidence_interval
    ours = clustered_interval(value_P, confidence=0.95, seed=0, support=(0, 1))
    assert pytest.approx((peer.low, peer.high), abs=0.02) == ours


@pytest.mark.parametrize("num_prompts", [1, 4, 25])
def test_equal_prompts_get_the_clopper_pearson_bound(num_prompts):
    """Where every prompt is right, the interval is scipy's exact binomial one."""
    exact = binomtest(num_prompts, num_prompts).proportion_ci(0.95, method="exact")
    ours = clustered_interval(np.ones(num_prompts), confidence=0.95, seed=0, support=(0, 1))
    assert pytest.approx((exact.low, exact.high)) == ours


def test_interval_covers_the_mean_about_as_often_as_promised():
    """Over 400 draws of 15 prompts, a 90 % interval holds the true mean in 86 to 95 % of cases."""
    rng = np.random.default_rng(0)
    held = 0
    for seed in range(400):
        lower, upper = clustered_interval(rng.beta(1.0, 2.0, 15), confidence=0.9, seed=seed, support=(0, 1))
        held += lower <= 1 / 3 <= upper
    assert 0.86 <= held / 400 <= 0.95


def test_sign_test_equals_the_binomial_tail():
    """Ties leave the test; the rest follow a fair coin."""
    before = {str(i): 0.5 for i in range(10)}
    after = {str(i): value for i, value in enumerate([1, 1, 1, 1, 1, 0, 0.5, 0.5, 0.5, 1])}
    tail = sum(math.comb(7, i) for i in (0, 1)) / 2**7
    assert pytest.approx(2 * tail) == paired_difference(before, after, seed=0).p_value
