"""Intervals and tests against independent references, and how often they are wrong where the truth is known."""

import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.uncertainty import (
    FEWEST_BLOCKS,
    ClassCounts,
    Estimate,
    claim_verdict,
    class_iou,
    detectable,
    difference_p,
    exact,
    holm,
    image_blocks,
    image_interval,
    judge,
    lead,
    leave_out,
    miou,
    over_seeds,
    read,
    read_counts,
    spread,
)
from analysis.uncertainty import _dunnett as dunnett
from pne.counts import Confusion, sparse_counts, write_confusion
from pne.errors import UserError


def results(seed: int, settings: int, seeds: int, shape: Sequence[int] = ()) -> np.ndarray:
    """Settings that share what their seeds do."""
    generator = np.random.default_rng(seed)
    shared = 3 * generator.normal(size=(*shape, 1, seeds))
    return 70 + generator.normal(size=(*shape, settings, 1)) + shared + generator.normal(size=(*shape, settings, seeds))


# Seeds.


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_a_paired_difference_is_that_of_scipy(seeds):
    ours, base = results(seeds, 2, seeds)
    reference = stats.ttest_rel(ours, base)
    expected = reference.confidence_interval(0.95)
    for found in (over_seeds(ours - base), lead([ours, base])):
        interval = found.interval()
        np.testing.assert_allclose([interval.low, interval.high], [expected.low, expected.high], rtol=1e-5)
        assert difference_p(found) == pytest.approx(reference.pvalue, rel=1e-4)
    assert spread([ours, base]).interval().high == pytest.approx(max(expected.high, -expected.low))


def test_the_pooled_error_is_the_residual_of_a_layout_in_blocks():
    """Least squares with one parameter for each setting and each seed."""
    values = results(0, 4, 5)
    rows, columns = np.indices(values.shape)
    design = np.concatenate([rows.reshape(-1, 1) == np.arange(4), columns.reshape(-1, 1) == np.arange(5)], 1)
    solution, *_ = np.linalg.lstsq(design.astype(float), values.ravel(), rcond=None)
    variance = ((values.ravel() - design @ solution) ** 2).sum() / (3 * 4)
    for rule in (lead, spread):
        assert rule(values).error == pytest.approx(np.sqrt(variance * 2 / 5))


@pytest.mark.parametrize(("others", "df", "printed"), [(2, 10, 2.15), (3, 10, 2.34), (4, 20, 2.30), (7, 60, 2.39)])
def test_quantiles_of_the_comparison_with_the_best_are_those_in_print(others, df, printed):
    """Dunnett 1955, Table 1a: one-sided, joint confidence 95 %."""
    assert dunnett.isf(0.05, others, df) == pytest.approx(printed, abs=0.006)


@pytest.mark.parametrize(("others", "df"), [(2, 4), (3, 14), (7, 49)])
def test_quantiles_of_the_comparison_with_the_best_by_integration(others, df):
    reference = stats.multivariate_t(shape=(np.eye(others) + 1) / 2, df=df, seed=0)
    for tail in (0.2, 0.025):
        quantile = dunnett.isf(tail, others, df)
        assert reference.cdf(np.full(others, quantile), maxpts=100_000) == pytest.approx(1 - tail, abs=1e-3)


def test_ends_of_lead_and_spread():
    """The end that needs every difference takes Student's t, the end that needs one compares all at once."""
    values = results(1, 8, 3)
    means, df = values.mean(1), 14
    error = lead(values).error
    found = lead(values).interval()
    gap = means[0] - means[1:].max()
    assert found.estimate == pytest.approx(gap)
    assert found.low == pytest.approx(gap - stats.t.isf(0.025, df) * error)
    assert found.high == pytest.approx(gap + dunnett.isf(0.025, 7, df) * error)
    found, gap = spread(values).interval(), means.max() - means.min()
    assert found.low == pytest.approx(
        max(0, gap - stats.studentized_range.isf(0.025, 8, df) * error / np.sqrt(2)), abs=1e-6
    )
    assert found.high == pytest.approx(gap + stats.t.isf(0.025, df) * error)
    assert spread(np.zeros((3, 4)) + np.array([1.0, 5, 2, 3])).interval() == (0, 0, 0)  # seeds alone are no spread


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["mean", "lead", "spread"]), st.floats(-3, 3))
def test_a_verdict_and_the_interval_say_the_same(seed, kind, bound):
    values = results(seed, 4, 4)
    found = {"mean": over_seeds(values[0] - values[1]), "lead": lead(values), "spread": spread(values)}[kind]
    _, low, high = found.interval()
    for bounds, held, failed in (
        ((bound, None), low > bound, high < bound),
        ((None, bound), high < bound, low > bound),
        ((bound, bound + 2), low > bound and high < bound + 2, high < bound or low > bound + 2),
    ):
        expected = "held" if held else "not held" if failed else "undetermined"
        if kind != "spread" or bound > 0:  # a spread has no values below 0
            assert judge([found], [bounds]).verdict == expected


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_decide_nothing(seeds):
    values = 100.0 * np.arange(3)[:, None] + np.random.default_rng(0).normal(size=(3, seeds))
    for found in (over_seeds(values[1] - values[0]), lead(values[::-1]), spread(values)):
        assert found.value > 90
        assert np.isnan(found.interval()[1:]).all()
        assert judge([found], [(0, None)]).verdict == "not enough seeds"
        assert read([found]) == "not enough seeds"
        assert difference_p(found) == 1 or np.isnan(difference_p(found))


# Many looks.


def test_holm_by_hand():
    """Sorted 0.005, 0.01, 0.03, 0.04, times 4, 3, 2, 1, and never below the one before."""
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([[0.5, 0.6], [0.01, np.nan]]), [[1, 1], [0.02, 1]])


def with_p(p: float, sign: int = 1) -> Estimate:
    """Five paired differences whose two-sided p value is this."""
    spreading = np.array([-2.0, -1, 0, 1, 2])
    error = spreading.std(ddof=1) / np.sqrt(5)
    return over_seeds(spreading + sign * stats.t.isf(p / 2, 4) * error)


@pytest.mark.parametrize(
    ("signed", "checks", "claim"),
    [
        ([0.04, 0.03], ["held", "held"], "held"),  # all at the full level
        ([-0.04], ["not held"], "not held"),
        ([-0.04, 0.03], ["undetermined", "held"], "undetermined"),  # twice 0.04 is too much
        ([-0.02, 0.03], ["not held", "held"], "not held"),
        ([0.06, 0.01], ["undetermined", "held"], "undetermined"),
    ],
)
def test_a_claim_needs_all_checks_and_falls_with_one(signed, checks, claim):
    found = judge([with_p(abs(p), int(np.sign(p))) for p in signed], [(0, None)] * len(signed))
    assert found.verdict.tolist() == checks
    assert claim_verdict(found.verdict) == claim
    assert difference_p(with_p(0.04)) == pytest.approx(0.04)


def test_a_claim_with_too_few_seeds_can_still_be_refuted():
    few = over_seeds([1.0, 2])
    assert claim_verdict(judge([few, with_p(0.001)], [(0, None)] * 2).verdict) == "not enough seeds"
    assert claim_verdict(judge([few, with_p(0.001, -1)], [(0, None)] * 2).verdict) == "not held"


@pytest.mark.parametrize(
    ("value", "bounds", "verdict"),
    [
        (0.1, (0, None), "held"),
        (0, (0, None), "not held"),  # of 0 more is asked
        (0, (None, 0), "not held"),
        (2.8, (2.8, None), "held"),
        (80.3 - 77.5, (2.8, None), "held"),  # 2.7999999999999972
        (0.5, (None, 0.5), "held"),
        (0.6, (None, 0.5), "not held"),
        (0.05, (0.1, 1.1), "not held"),
        (1.1, (0.1, 1.1), "held"),
    ],
)
def test_printed_numbers_are_exact(value, bounds, verdict):
    assert judge([exact(value)], [bounds]).verdict == verdict


def test_what_an_arm_does():
    arms = {
        "gain": over_seeds([1, 1.2, 0.9, 1.1]),
        "loss": over_seeds([-1, -1.2, -0.9, -1.1]),
        "smaller": over_seeds([0.1, -0.2, 0.2, 0]),
        "undetermined": over_seeds([2, -1, 3.0, 1]),
    }
    assert read(list(arms.values())).tolist() == list(arms)
    assert read([with_p(0.04)]) == "gain"
    assert read([with_p(0.04), with_p(0.5)]).tolist() == ["undetermined"] * 2  # Holm


@pytest.mark.parametrize("comparisons", [1, 3])
def test_the_detectable_difference_is_found_as_often_as_it_says(comparisons):
    difference = detectable(5, deviation=2, comparisons=comparisons)
    draws = np.random.default_rng(0).normal(difference, 2, size=(20_000, 5))
    found = stats.ttest_1samp(draws, 0, axis=1).pvalue <= 0.05 / comparisons
    assert found.mean() == pytest.approx(0.8, abs=0.01)
    assert detectable(2) == np.inf


# Test images.


def draw_matrices(seed: int, images: int = 5, classes: int = 4, skill: float = 0.6, pixels: float = 30) -> np.ndarray:
    rates = np.full((classes, classes), (1 - skill) / (classes - 1))
    np.fill_diagonal(rates, skill)
    return np.random.default_rng(seed).poisson(pixels * rates, size=(images, classes, classes))


def counts_of(matrices: np.ndarray) -> ClassCounts:
    names = tuple(map(str, range(len(matrices))))
    return ClassCounts(np.einsum("icc->ic", matrices), matrices.sum(2), matrices.sum(1), names)


def reference_miou(matrices: Sequence[np.ndarray]) -> float:
    """Sum the confusion matrices, then average TP / (TP + FP + FN) over the labelled classes; percent."""
    total = sum(matrices)
    hits, labelled = total.diagonal(), total.sum(1)
    known = labelled > 0
    return 100 * (hits[known] / (labelled + total.sum(0) - hits)[known]).mean()


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(2, 5), st.floats(0.3, 3))
def test_miou_without_one_image_equals_the_reference(seed, images, classes, pixels):
    matrices = draw_matrices(seed, images, classes, pixels=pixels)  # few pixels: some classes never occur
    matrices[:, 0, 0] += 1
    kept = [matrices, *(np.delete(matrices, index, 0) for index in range(images))]
    found = miou(counts_of(matrices), leave_out(np.arange(images)))
    np.testing.assert_allclose(found, [reference_miou(list(some)) for some in kept], rtol=1e-12)
    np.testing.assert_allclose(miou(counts_of(matrices)), found[:1])


def test_a_class_absent_from_a_sample_is_not_punished_there():
    """Class 1 is labelled in the last image alone, and predicted falsely in the first."""
    matrices = np.array([[[6, 4], [0, 0]], [[8, 0], [0, 0]], [[0, 0], [5, 5]]])
    found = class_iou(counts_of(matrices), leave_out(np.arange(3)))
    np.testing.assert_allclose(found[0], [100 * 14 / 23, 100 * 5 / 14])
    np.testing.assert_allclose(found[3], [100 * 14 / 18, np.nan])
    np.testing.assert_allclose(miou(counts_of(matrices), leave_out(np.arange(3)))[3], 100 * 14 / 18)


def test_the_interval_of_a_mean_is_students():
    values = np.random.default_rng(0).normal(size=12)
    means = leave_out(np.arange(12)) @ values / np.array([12, *[11] * 12])
    found = image_interval(means)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high])


def test_the_interval_of_a_class_counts_the_blocks_that_hold_it():
    values = np.array([[50.0, 50, 50], [51, 51, np.nan], [49, 49, 50], [50, 50, 50]])
    found = image_interval(values, holding=np.array([3, 2, 1]))
    width = found.high - found.estimate
    assert width[1] / width[0] == pytest.approx(stats.t.isf(0.025, 1) / stats.t.isf(0.025, 2))
    assert np.isnan(width[2])


def test_frames_make_contiguous_blocks_and_other_images_none():
    names = [f"0001TP_{frame:06d}.png" for frame in range(62)] + [f"Seq05VD_f{frame:05d}.png" for frame in range(171)]
    blocks = image_blocks(names, "camvid")
    assert blocks.max() + 1 == 20 == FEWEST_BLOCKS
    assert (np.diff(blocks) >= 0).all()  # contiguous, and none spans both clips
    assert blocks[61] + 1 == blocks[62]
    assert set(np.bincount(blocks)) == {11, 12, 13}
    order = np.random.default_rng(0).permutation(233)
    np.testing.assert_array_equal(image_blocks(np.array(names)[order].tolist(), "camvid_small"), blocks[order])
    assert image_blocks(["bonn_000000_000019", "ulm_000000_000019"], "cityscapes").tolist() == [0, 1]
    assert image_blocks(names[:62], "camvid").max() + 1 == 6 < FEWEST_BLOCKS
    assert image_blocks(names, "ade20k").tolist() == list(range(233))


def test_leaving_out_a_block_leaves_out_all_its_images():
    assert leave_out([0, 0, 1]).tolist() == [[1, 1, 1], [0, 0, 1], [1, 1, 0]]


def test_counts_are_read(tmp_path):
    path = tmp_path / "single_scale.confusion.npz"
    matrices = draw_matrices(0)
    expected = counts_of(matrices)
    images = [sparse_counts(name, matrix) for name, matrix in zip(expected.names, matrices, strict=True)]
    write_confusion(path, Confusion.of(images, 4))
    found = read_counts(path)
    for part in ("hits", "labelled", "predicted", "names"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))
    path.unlink()
    with pytest.raises(UserError, match="no readable confusion counts"):
        read_counts(path)


# How often they are wrong.


@pytest.fixture(scope="module")
def benchmark(repository: Path) -> dict[str, Any]:
    return runpy.run_path(str(repository / "benchmarks/error_rates.py"))


@pytest.fixture(scope="module")
def rates(benchmark: dict[str, Any]) -> list[Any]:
    *of_seeds, of_images = benchmark["PARTS"]
    return [*benchmark["simulate"](1000, of_seeds), *benchmark["simulate"](100, [of_images])]


def test_intervals_and_verdicts_are_wrong_as_rarely_as_they_should(rates):
    """A tenth of the documented repetitions and less, so with some slack: two standard deviations of a share of 5 %."""
    bounded = [one for one in rates if not one.rule.startswith("test images")]
    assert len(bounded) == len(rates) - 11
    assert [one for one in bounded if one.misses(slack=1.4)] == []
    assert [one for one in rates if one.misses(slack=4)] == []
    wrong = next(one for one in rates if one.truth.endswith("as single images (wrong)"))
    assert wrong.covers < 85  # what blocks are for


def test_the_documented_rates_meet_their_targets_and_are_those_of_this_code(rates, benchmark, repository):
    text = (repository / "docs/statistics.md").read_text(encoding="utf-8")
    lines = text.split(benchmark["MARKS"][0])[1].split(benchmark["MARKS"][1])[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [line[:3] for line in cells] == [[one.rule, one.truth, str(one.size)] for one in rates]
    for line, one in zip(cells, rates, strict=True):
        repetitions = 100 if line[0].startswith("test images") else 1000
        documented = [float(cell.removesuffix(" %")) if cell else None for cell in line[3:]]
        assert not replace(one, **dict(zip(("covers", "wrong", "decided"), documented, strict=True))).misses()
        for share, found in zip(documented, (one.covers, one.wrong, one.decided), strict=True):
            assert (share is None) == (found is None)
            if share is not None:
                deviation = 100 * np.sqrt(max(share * (100 - share), 50) / 1e4 / repetitions)
                assert abs(share - found) < 4.5 * deviation
