"""The histogram keeps percentiles to its digits; the judge of memory tells a leak from noise, steps and warm-up."""

import numpy as np
import pytest

from opforge.verify.stress import Histogram, growth, resident_bytes

MIB = 1 << 20


@pytest.mark.parametrize("digits", [2, 3])
def test_percentiles_are_exact_to_the_digits(digits):
    rng = np.random.default_rng(digits)
    values = np.concatenate([rng.lognormal(12, 2, 20000), rng.integers(0, 3000, 500), [0, 1, 4 * 10**11]]).astype(int)
    histogram = Histogram(digits)
    for value in values.tolist():
        histogram.record(value)
    ordered = np.sort(values)
    for percent in (0.1, 10, 50, 90, 99, 99.9, 99.99, 100):
        exact = int(ordered[max(0, int(np.ceil(len(values) * percent / 100 - 1e-9)) - 1)])
        assert exact <= histogram.percentile(percent) <= exact * (1 + 10.0**-digits) + 1
    assert histogram.total == len(values)
    assert histogram.mean == pytest.approx(values.mean(), rel=1e-12)
    assert histogram.max == histogram.percentile(100) == values.max()


def test_histograms_add_up_and_long_values_do_not_fall_off():
    rng = np.random.default_rng(0)
    parts = [rng.integers(1, 10**9, 300).tolist() for _ in range(3)]
    whole, sums = Histogram(), Histogram()
    for part in parts:
        one = Histogram()
        for value in part:
            one.record(value)
            whole.record(value)
        sums.add(one)
    assert list(sums.steps()) == list(whole.steps())
    assert (sums.total, sums.sum, sums.max) == (whole.total, whole.sum, whole.max)
    whole.record(10**15)
    assert whole.percentile(100) >= (1 << 42) - 1
    assert Histogram().percentile(50) == 0
    with pytest.raises(ValueError, match="other steps"):
        whole.add(Histogram(2))


def noise(count, seed=0):
    return (100 * MIB + np.random.default_rng(seed).integers(0, 30, count) * 4096).tolist()


def test_steady_memory_holds():
    found = growth(noise(200))
    assert found.verdict == "holds"
    assert found.low <= 0 <= found.high


def test_a_leak_grows_by_what_leaks():
    leaking = [value + 64 * 1024 * k for k, value in enumerate(noise(200))]
    found = growth(leaking)
    assert found.verdict == "grows"
    assert found.low <= 64 * 1024 * 149 <= found.high
    assert growth(leaking, allowed=100 * MIB).verdict == "holds"


def test_a_leak_is_one_of_calls_however_unevenly_they_come():
    """Where other programs have the cores, most calls fall into a few of the samples."""
    calls = np.cumsum(np.random.default_rng(1).lognormal(2, 2.5, 200).astype(int))
    leaking = [value + 2048 * int(count) for value, count in zip(noise(200), calls, strict=True)]
    found = growth(leaking, calls=calls.tolist())
    assert found.verdict == "grows"
    assert found.span == calls[-1] - calls[50]
    assert found.low <= 2048 * found.span <= found.high
    assert found.bytes / found.span == pytest.approx(2048, rel=0.05)
    assert growth(noise(200), calls=calls.tolist()).verdict == "holds"
    stopped = [*calls[:100].tolist(), *[int(calls[100])] * 100]  # a call that never ends
    assert growth(noise(200), calls=stopped) == growth(noise(200))


def test_warm_up_and_a_single_step_are_no_leak():
    warm = [value + MIB * min(k, 40) for k, value in enumerate(noise(200))]
    assert growth(warm).verdict == "holds"
    for step in (80, 120, 160):
        once = [value + (8 * MIB if k >= step else 0) for k, value in enumerate(noise(200))]
        assert growth(once).verdict != "grows", step


def test_the_interval_holds_for_samples_that_follow_each_other():
    # A random walk that returns: with independent samples assumed, the line would be sure far too often.
    rng = np.random.default_rng(3)
    sure = 0
    for _ in range(200):
        y = [0.0]
        for _ in range(199):
            y.append(0.9 * y[-1] + rng.standard_normal())
        found = growth([100 * MIB + int(100_000 * v) for v in y], allowed=0)
        sure += not found.low <= 0 <= found.high
    assert sure <= 30


def test_few_samples_say_nothing():
    assert growth([MIB] * 8).verdict == "not clear"


def test_memory_of_this_process_is_known():
    assert resident_bytes() > MIB
    assert resident_bytes(2**22 + 1) is None
