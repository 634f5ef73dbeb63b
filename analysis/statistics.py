"""How sure a difference of mIoU is: a paired bootstrap over test images and, with several seeds, over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import norm, t

from pne.counts import class_iou, mean_of_known, read_confusion
from pne.errors import UserError

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class ImageCounts:
    """Pixels of each image and class, enough for the IoU of any subset of images.

    Attributes
    ----------
    hits, labelled, predicted : numpy.ndarray, shape (I, C), int64
        True positives, pixels of the class, pixels predicted as the class.
    names : tuple of str
        One per image.
    """

    hits: np.ndarray
    labelled: np.ndarray
    predicted: np.ndarray
    names: tuple[str, ...]


@dataclass(frozen=True)
class Interval:
    """An estimate with its bootstrap percentile interval, in the unit of the estimate."""

    estimate: float
    low: float
    high: float


def read_counts(path: Path) -> ImageCounts:
    """Read the per-image confusion counts of one evaluation.

    Raises
    ------
    UserError
        If the file is missing or damaged.
    """
    confusion = read_confusion(path)
    return ImageCounts(*confusion.per_class(), names=confusion.names)


def miou(counts: ImageCounts, weights: np.ndarray | None = None) -> np.ndarray:
    """Compute the mIoU of weighted images.

    IoU is TP / (TP + FP + FN) from pixels summed over images; classes neither labelled nor predicted are left out.

    Parameters
    ----------
    counts : ImageCounts
    weights : numpy.ndarray, shape (R, I), optional
        How often each image occurs in each of R samples; default: one sample with every image once.

    Returns
    -------
    numpy.ndarray, shape (R,), float64
        Percent.
    """
    if weights is None:
        weights = np.ones((1, len(counts.names)))
    weights = weights.astype(np.float64)
    iou = class_iou(weights @ counts.hits, weights @ counts.labelled, weights @ counts.predicted)
    return np.nan_to_num(mean_of_known(iou))


def draw_images(images: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Draw bootstrap samples of images; shape (resamples, images), how often each image was drawn."""
    return generator.multinomial(images, np.full(images, 1 / images), size=resamples)


def streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return two independent random streams: to draw images from, and to draw seeds from."""
    images, seeds = np.random.default_rng(seed).spawn(2)
    return images, seeds


def draw_seeds(seeds: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Draw bootstrap samples of seeds; shape (resamples, seeds), indices."""
    return generator.integers(seeds, size=(resamples, seeds))


@cache
def widening(seeds: int, level: float = LEVEL) -> float:
    """Return the factor that few seeds need so that a bootstrap over them covers what it should.

    Resampling S values finds a variance of their mean that is too small by (S - 1) / S, and the quantiles of a normal
    distribution, although S values know their own spread so badly that Student's t with S - 1 degrees of freedom is
    due: t / z * sqrt(S / (S - 1)) mends both. Without it, the 95 % interval of two seeds covers the truth in half of
    all cases, that of five in 84 %; with it in 93 to 95 %. The factor is 9.2 for 2 seeds, 2.7 for 3, 1.6 for 5.
    """
    tail = (1 + level) / 2
    return float(t.ppf(tail, seeds - 1) / norm.ppf(tail) * np.sqrt(seeds / (seeds - 1)))


def widen(over_all: np.ndarray, over_drawn: np.ndarray, seeds: int, level: float = LEVEL) -> np.ndarray:
    """Widen what resampling seeds adds to a resampled quantity; what resampling images adds stays as it is.

    Parameters
    ----------
    over_all, over_drawn : numpy.ndarray, shape (R, ...)
        The quantity in each resample of images, over all seeds and over the seeds drawn for that resample.
    seeds : int
        S, how many there are; with one there is nothing to widen.

    Returns
    -------
    numpy.ndarray, shape (R, ...)
    """
    return over_all if seeds == 1 else over_all + widening(seeds, level) * (over_drawn - over_all)


def resample_seeds(
    values: np.ndarray, quantity: Callable[[Sequence[np.ndarray]], np.ndarray], generator: np.random.Generator
) -> np.ndarray:
    """Resample a quantity of settings over the seeds that each of them was trained with.

    In every resample all settings have the same drawn seeds, so that what is computed from them is paired.

    Parameters
    ----------
    values : numpy.ndarray, shape (R, G, S)
        Of G settings and S seeds in R resamples of test images, the same for all; R equal ones where the value does
        not depend on images.
    quantity : callable
        From the G means over seeds, shape (R,) each, to the quantity, shape (R,).
    generator : numpy.random.Generator

    Returns
    -------
    numpy.ndarray, shape (R,)
        With one seed its spread says how much depends on the choice of test images alone; it knows nothing of the
        randomness of training. See `widening` for several.
    """
    resamples, _, seeds = values.shape
    drawn = draw_seeds(seeds, resamples, generator)[:, None]
    over_drawn = np.take_along_axis(values, np.broadcast_to(drawn, values.shape), 2)
    return widen(*(quantity(list(part.mean(2).T)) for part in (values, over_drawn)), seeds)


def common_images(runs: Sequence[Sequence[ImageCounts]]) -> int:
    """Return the number of images that all settings and seeds were evaluated on.

    Raises
    ------
    UserError
        If the settings were not evaluated on the same images, or have different numbers of seeds.
    """
    seeds = {len(group) for group in runs}
    names = {counts.names for group in runs for counts in group}
    if len(seeds) != 1 or 0 in seeds:
        raise UserError(f"paired bootstrap: expected the same seeds for every setting, got {sorted(seeds)} of them")
    if len(names) != 1:
        raise UserError("paired bootstrap: the runs were evaluated on different images; evaluate them again")
    return len(next(iter(names)))


def interval(estimate: float, resampled: np.ndarray, level: float = LEVEL) -> Interval:
    """Return the percentile interval of a resampled quantity around its estimate."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(estimate), float(low), float(high))
