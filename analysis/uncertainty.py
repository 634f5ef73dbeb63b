"""How sure a result is: what other seeds would give, which decides, and what other test images would give, beside it.

**Seeds.** A quantity is known for each of n seeds, the same for all settings, so that what a seed does to all of them
drops out. Its error is Student's t. The lead over the best of others and the spread of a group are extremes of noisy
means; they take the seeds as blocks of a two-way layout, whose residuals have (G - 1)(n - 1) degrees of freedom. With
fewer than three seeds nothing is decided.

**Images.** Blocks of images are left out one at a time, for all settings and seeds alike. The interval says how much a
result depends on the choice of test images; it never decides.

``docs/statistics.md`` says why each rule is as it is, and how often it errs in simulations (``make simulate``).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import chi2, nct, rv_continuous, studentized_range, t

from pne.counts import class_iou as iou_of_sums
from pne.counts import mean_of_known, read_confusion
from pne.errors import UserError

Array = NDArray[np.float64]
Verdict = Literal["held", "not held", "undetermined", "not enough seeds"]
Reading = Literal["gain", "loss", "smaller", "undetermined", "not enough seeds"]
Bounds = tuple[float | None, float | None]

LEVEL = 0.95
FEWEST_SEEDS = 3
FEWEST_BLOCKS = 20
MARGIN = 0.6
"""Percentage points of mIoU; a smaller difference is the least that the paper prints as a gain."""


class Interval(NamedTuple):
    """An estimate and its interval, in the unit of the estimate; NaN ends where there is none."""

    estimate: Any
    low: Any
    high: Any


# What other seeds would give.


@dataclass(frozen=True)
class Estimate:
    """A quantity over seeds, and how far its estimate can be off; arrays broadcast.

    Attributes
    ----------
    value : ndarray, shape (...)
        In the unit of the quantity.
    error : ndarray, shape (...)
        Standard error; NaN where there are too few seeds to know it, 0 for a value taken as exact.
    too_high, too_low : frozen distribution of scipy.stats
        Of the largest value - truth, and truth - value, in standard errors.
    floor : float
        What the quantity cannot be below.
    """

    value: Array
    error: Array
    too_high: Any
    too_low: Any
    floor: float = -np.inf

    def interval(self, level: float = LEVEL) -> Interval:
        """Return the interval that covers the truth with at least this probability."""
        down, up = (float(side.dist.isf((1 - level) / 2, *side.args)) for side in (self.too_high, self.too_low))
        low = np.maximum(self.value - down * self.error, self.floor)
        return Interval(self.value, low, self.value + up * self.error)

    def p_holds(self, minimum: float | None, maximum: float | None) -> Array:
        """Return the two-sided p value of the bounds being kept; at most 0.05 where the 95 % interval keeps them.

        Of an exact value: bounds of 0 ask for more (or less) than 0, others include their value.
        """
        gaps = self._gaps(minimum, maximum)
        return np.max([self._p(gap, side, tie=bound != 0) for bound, gap, side, _ in gaps], 0)

    def p_fails(self, minimum: float | None, maximum: float | None) -> Array:
        """Return the two-sided p value of a bound being broken; see `p_holds`."""
        gaps = self._gaps(minimum, maximum)
        return np.min([self._p(-gap, side, tie=bound == 0) for bound, gap, _, side in gaps], 0)

    def _gaps(self, minimum: float | None, maximum: float | None) -> Iterator[tuple[float, Array, Any, Any]]:
        """Yield each bound, how far the value keeps it, and the error if it seems kept, and if it seems broken."""
        if minimum is not None:
            yield minimum, self.value - minimum, self.too_high, self.too_low
        if maximum is not None:
            yield maximum, maximum - self.value, self.too_low, self.too_high

    def _p(self, gap: ArrayLike, side: Any, tie: bool) -> Array:
        gap = np.round(gap, 9)  # printed decimals, not their binary neighbours
        exact = np.where((gap > 0) | ((gap == 0) & tie), np.inf, -np.inf)
        distance = np.divide(gap, self.error, out=exact, where=self.error != 0)
        return np.minimum(2 * side.sf(distance), 1)


class _Dunnett(rv_continuous):
    """The largest of k differences to one common mean, in standard errors: multivariate t with correlations of 1/2.

    Dunnett (1955): given the error z of the common mean and the ratio s of the estimated to the true deviation, the
    others are independent.
    """

    def _cdf(self, x: Array, comparisons: Array, df: Array) -> Array:
        z, z_weight = np.polynomial.hermite_e.hermegauss(64)
        share, share_weight = np.polynomial.legendre.leggauss(128)
        share, share_weight = (share + 1) / 2, share_weight / 2
        x, comparisons, df = (np.atleast_1d(part)[:, None] for part in (x, comparisons, df))
        s = np.sqrt(chi2.ppf(share, df) / df)
        inside = ndtr((np.sqrt(2) * x * s)[:, :, None] - z) ** comparisons[:, :, None]
        return np.einsum("msz,s,z->m", inside, share_weight, z_weight / np.sqrt(2 * np.pi))


_dunnett = _Dunnett(name="dunnett")


@cache
def exact(value: ArrayLike) -> Estimate:
    """Take a value, such as a printed one, as exact."""
    value = np.asarray(value, np.float64)
    return Estimate(value, np.zeros_like(value), t(1), t(1))


def over_seeds(values: ArrayLike) -> Estimate:
    """Estimate the mean of a quantity that each seed gives, such as a paired difference; Student's t.

    Parameters
    ----------
    values : array_like, shape (..., n)
        One per seed.
    """
    values = np.asarray(values, np.float64)
    seeds = values.shape[-1]
    enough = seeds >= FEWEST_SEEDS
    error = values.std(-1, ddof=1) / np.sqrt(seeds) if enough else np.full(values.shape[:-1], np.nan)
    side = t(max(seeds - 1, 1))
    return Estimate(values.mean(-1), error, side, side)


def lead(values: ArrayLike) -> Estimate:
    """Estimate the mean of the first setting minus the best mean of the others, seeds as blocks.

    The setting must be named beforehand. That it leads by more needs every single difference to be larger, each at the
    full level (intersection-union); that it leads by less needs one smaller difference, so all are compared at once
    (Dunnett 1955; the upper ends are those of Hsu's multiple comparisons with the best, 1981).

    Parameters
    ----------
    values : array_like, shape (..., G, n)
        Of G settings and n seeds.
    """
    values = np.asarray(values, np.float64)
    means = values.mean(-1)
    error, df = _pooled(values)
    return Estimate(means[..., 0] - means[..., 1:].max(-1), error, t(df), _dunnett(values.shape[-2] - 1, df))


def spread(values: ArrayLike) -> Estimate:
    """Estimate the largest minus the smallest mean of a group, seeds as blocks.

    The range of noisy means is too large. By how much at most is the studentized range (Tukey); it is never smaller
    than the difference of the two settings that are truly furthest apart, whose error is Student's t.

    Parameters
    ----------
    values : array_like, shape (..., G, n)
        Of G settings and n seeds.
    """
    values = np.asarray(values, np.float64)
    error, df = _pooled(values)
    too_high = studentized_range(values.shape[-2], df, 0, 1 / np.sqrt(2))  # in standard errors of a difference
    return Estimate(np.ptp(values.mean(-1), -1), error, too_high, t(df), floor=0)


def _pooled(values: Array) -> tuple[Array, int]:
    """Standard error of a difference of two settings' means, from the residuals of all, and its degrees of freedom."""
    settings, seeds = values.shape[-2:]
    if seeds < FEWEST_SEEDS:
        return np.full(values.shape[:-2], np.nan), 1
    df = (settings - 1) * (seeds - 1)
    residuals = values - values.mean(-1, keepdims=True)
    residuals -= residuals.mean(-2, keepdims=True)
    return np.sqrt(2 * (residuals**2).sum((-2, -1)) / df / seeds), df


# Many looks.


def holm(p: ArrayLike) -> Array:
    """Adjust p values for their number (Holm 1979).

    Parameters
    ----------
    p : array_like, shape (..., m)

    Returns
    -------
    ndarray, shape (..., m)
        Never below ``p``; NaN (not tested) counts as 1.
    """
    p = np.nan_to_num(np.asarray(p, np.float64), nan=1)
    order = np.argsort(p, -1)
    steps = np.take_along_axis(p, order, -1) * np.arange(p.shape[-1], 0, -1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.minimum(np.maximum.accumulate(steps, -1), 1), -1)
    return adjusted


class Judgement(NamedTuple):
    """Verdicts on checks, each of shape (..., m), with the p values that they rest on."""

    verdict: NDArray[np.str_]
    p_holds: Array
    p_fails: Array


def judge(estimates: Sequence[Estimate], bounds: Sequence[Bounds], level: float = LEVEL) -> Judgement:
    """Judge the checks of one claim.

    A check is held when it holds by itself, since the claim needs all of them (intersection-union). It is not held when
    it fails after Holm's adjustment for the number of checks, since one failure refutes the claim.

    Parameters
    ----------
    estimates : sequence of Estimate, length m
    bounds : sequence of (minimum, maximum), length m
        None where there is no such bound.
    """
    pairs = list(zip(estimates, bounds, strict=True))
    p_holds = np.stack([estimate.p_holds(*keeps) for estimate, keeps in pairs], -1)
    p_fails = holm(np.stack([estimate.p_fails(*keeps) for estimate, keeps in pairs], -1))
    unknown = np.isnan(np.stack([estimate.error for estimate in estimates], -1))
    choices = {"not enough seeds": unknown, "held": p_holds <= 1 - level, "not held": p_fails <= 1 - level}
    return Judgement(np.select(list(choices.values()), list(choices), "undetermined"), p_holds, p_fails)


def claim_verdict(verdicts: ArrayLike) -> NDArray[np.str_]:
    """Return the verdict on a claim from those on its checks, shape (..., m): the weakest that one of them has."""
    verdicts = np.asarray(verdicts)
    order = ("not held", "not measured", "not reported", "not enough seeds", "undetermined", "not comparable")
    return np.select([(verdicts == verdict).any(-1) for verdict in order], order, "held")


def read(estimates: Sequence[Estimate], margin: float = MARGIN, level: float = LEVEL) -> NDArray[np.str_]:
    """Read a family of differences, each as gain, loss, smaller than the margin, or undetermined; Holm over the family.

    Parameters
    ----------
    estimates : sequence of Estimate, length m
    margin : float
        In the unit of the differences.

    Returns
    -------
    ndarray of str, shape (..., m)
        See `Reading`. A gain or loss that is known to be smaller than the margin reads gain or loss.
    """
    p = holm(np.stack([difference_p(one) for one in estimates], -1))
    small = holm(np.stack([one.p_holds(-margin, margin) for one in estimates], -1))
    gains = np.stack([one.value > 0 for one in estimates], -1)
    unknown = np.isnan(np.stack([one.error for one in estimates], -1))
    differs = p <= 1 - level
    choices: dict[Reading, NDArray[np.bool_]] = {
        "not enough seeds": unknown,
        "gain": differs & gains,
        "loss": differs,
        "smaller": small <= 1 - level,
    }
    return np.select(list(choices.values()), list(choices), "undetermined")


def difference_p(estimate: Estimate) -> Array:
    """Return the two-sided p value of a difference from 0; adjust those of a table or figure by `holm`."""
    return np.minimum(estimate.p_holds(0, None), estimate.p_holds(None, 0))


def detectable(seeds: int, deviation: float = 1, comparisons: int = 1, power: float = 0.8) -> float:
    """Return the smallest true difference that a paired test over seeds finds with this probability.

    Parameters
    ----------
    seeds : int
        At least three; infinity is returned for fewer.
    deviation : float
        Standard deviation of the paired difference between seeds.
    comparisons : int
        How many are tested together; the first step of Holm, which the others cannot make harder.

    Returns
    -------
    float
        In the unit of ``deviation``.
    """
    if seeds < FEWEST_SEEDS:
        return np.inf
    critical = t.isf((1 - LEVEL) / 2 / comparisons, seeds - 1)
    distance = brentq(lambda shift: nct.sf(critical, seeds - 1, shift) - power, 0, 20 * critical)
    return deviation * distance / np.sqrt(seeds)


# What other test images would give.


class ClassCounts(NamedTuple):
    """Pixels of each image and class, enough for the IoU of any subset of images.

    Attributes
    ----------
    hits, labelled, predicted : numpy.ndarray, shape (I, C), int64
        True positives, pixels of the class, pixels predicted as the class.
    names : tuple of str
        One per image.
    """

    hits: NDArray[np.int64]
    labelled: NDArray[np.int64]
    predicted: NDArray[np.int64]
    names: tuple[str, ...]


def read_counts(path: Path) -> ClassCounts:
    """Read the per-image confusion counts of one evaluation.

    Raises
    ------
    UserError
        If the file is missing or damaged.
    """
    confusion = read_confusion(path)
    return ClassCounts(*confusion.per_class(), names=confusion.names)


def common_images(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names of the images that all runs were evaluated on, given those of each.

    Raises
    ------
    UserError
        If they were evaluated on different ones.
    """
    first, *others = dict.fromkeys(names)
    if others:
        raise UserError("paired comparison: the runs were evaluated on different images; evaluate them again")
    return first


def class_iou(counts: ClassCounts, weights: ArrayLike | None = None) -> Array:
    """Compute the IoU of every class on weighted images.

    TP / (TP + FP + FN) from pixels summed over images. A class counts where it is labelled: no sample has another class
    than the whole split has, and one that a sample lacks is not punished there for pixels predicted as it.

    Parameters
    ----------
    counts : ClassCounts
    weights : array_like, shape (R, I), optional
        How often each image occurs in each of R samples, see `leave_out`; default: each once in one sample.

    Returns
    -------
    ndarray, shape (R, C)
        Percent; NaN for a class that is not labelled.
    """
    weights = np.ones((1, len(counts.names))) if weights is None else np.asarray(weights, np.float64)
    sums = (weights @ part.astype(np.float64) for part in (counts.hits, counts.labelled, counts.predicted))
    hits, labelled, predicted = sums
    return np.where(labelled > 0, iou_of_sums(hits, labelled, predicted), np.nan)


def miou(counts: ClassCounts, weights: ArrayLike | None = None) -> Array:
    """Compute the mean of `class_iou` over the classes labelled in each sample, shape (R,), percent."""
    return mean_of_known(class_iou(counts, weights))


def clip_of(name: str) -> str:
    """Return the clip of a frame of CamVid, or the city of an image of Cityscapes, with which its name begins."""
    return name.partition("_")[0]


_FRAMES = ("camvid", "cityscapes")
_SHORTEST_BLOCK = 10


def image_blocks(names: Sequence[str], dataset: str) -> NDArray[np.int64]:
    """Group images that are alike because they were taken one after the other.

    Frames of a clip of CamVid and images of a city of Cityscapes, whose names begin alike, make contiguous blocks: the
    longer, the less one has to do with the next, so `FEWEST_BLOCKS` in all, but of about ten images at least. Images of
    other data sets are blocks of their own.

    Parameters
    ----------
    names : sequence of str, length I
    dataset : str
        Name of the data set, such as ``cityscapes``.

    Returns
    -------
    ndarray, shape (I,)
        Block of every image, from 0.
    """
    if not dataset.startswith(_FRAMES):
        return np.arange(len(names))
    sequences: dict[str, list[int]] = {}
    for index in sorted(range(len(names)), key=names.__getitem__):
        sequences.setdefault(clip_of(names[index]), []).append(index)
    length = max(_SHORTEST_BLOCK, len(names) / FEWEST_BLOCKS)
    blocks, first = np.empty(len(names), np.int64), 0
    for frames in sequences.values():
        number = max(1, round(len(frames) / length))
        blocks[frames] = first + np.arange(len(frames)) * number // len(frames)
        first += number
    return blocks


def leave_out(blocks: ArrayLike) -> Array:
    """Return how often each image occurs in the whole sample and in those that leave out one block.

    Parameters
    ----------
    blocks : array_like, shape (I,)
        From `image_blocks`; B of them.

    Returns
    -------
    ndarray, shape (1 + B, I)
        Ones, then lines with a zero for every image of the block left out.
    """
    blocks = np.asarray(blocks)
    return np.concatenate([np.ones((1, len(blocks))), blocks != np.arange(blocks.max() + 1)[:, None]])


def image_interval(values: ArrayLike, holding: ArrayLike | None = None, level: float = LEVEL) -> Interval:
    """Return the interval of a quantity over test images: jackknife that deletes one block at a time, Student's t.

    Parameters
    ----------
    values : array_like, shape (1 + B, ...)
        The quantity in the samples of `leave_out`. Where one of them does not have it there is no interval.
    holding : array_like, shape (...), optional
        How many blocks have a part in the quantity, such as those that hold the class; default: B.
    level : float
        With fewer than `FEWEST_BLOCKS` blocks the interval is too short, and whoever prints it says so.
    """
    values = np.asarray(values, np.float64)
    blocks = len(values) - 1
    df = np.asarray(blocks if holding is None else holding) - 1
    error = np.sqrt(blocks - 1) * values[1:].std(0)
    width = t.isf((1 - level) / 2, np.where(df > 0, df, np.nan)) * error
    return Interval(values[0], values[0] - width, values[0] + width)
