"""How sure a difference of mIoU is: a paired bootstrap over test images and, with several seeds, over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
    try:
        with np.load(path, allow_pickle=False) as data:
            images, classes, _ = (int(size) for size in data["shape"])
            image, true, predicted, count = (
                data[key].astype(np.int64) for key in ("image", "true", "predicted", "count")
            )
            names = tuple(data["names"].tolist())
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UserError(f"{path}: no readable confusion counts ({error}); run the evaluation again") from error
    if len(names) != images:
        raise UserError(f"{path}: {len(names)} names for {images} images; run the evaluation again")

    def per_class(of: np.ndarray, weights: np.ndarray) -> np.ndarray:
        flat = np.bincount(image * classes + of, weights=weights, minlength=images * classes)
        return flat.reshape(images, classes).astype(np.int64)

    return ImageCounts(
        hits=per_class(true, count * (true == predicted)),
        labelled=per_class(true, count),
        predicted=per_class(predicted, count),
        names=names,
    )


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
    hits = weights @ counts.hits.astype(np.float64)
    union = weights @ (counts.labelled + counts.predicted - counts.hits).astype(np.float64)
    occurs = union > 0
    iou = np.divide(hits, union, out=np.zeros_like(hits), where=occurs)
    return 100 * iou.sum(1) / np.maximum(occurs.sum(1), 1)


def draw_images(images: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Draw bootstrap samples of images; shape (resamples, images), how often each image was drawn."""
    return generator.multinomial(images, np.full(images, 1 / images), size=resamples)


def resample_miou(
    runs: Sequence[Sequence[ImageCounts]], generator: np.random.Generator, resamples: int = RESAMPLES
) -> np.ndarray:
    """Resample the mIoU of several settings together, each trained with the same seeds.

    In every resample all settings and seeds see the same drawn images, so that differences between settings are
    paired; with more than one seed the seeds are drawn with replacement too, again the same for all settings.

    Parameters
    ----------
    runs : sequence of sequence of ImageCounts
        For each of G settings its S seeds, in the same order.
    generator : numpy.random.Generator
    resamples : int
        R.

    Returns
    -------
    numpy.ndarray, shape (R, G), float64
        Percent, mean over the drawn seeds. With one seed the spread says how much depends on the choice of test
        images; it knows nothing of the randomness of training.

    Raises
    ------
    UserError
        If the settings were not evaluated on the same images, or have different numbers of seeds.
    """
    weights = draw_images(common_images(runs), resamples, generator)
    values = np.stack([np.stack([miou(counts, weights) for counts in group], 1) for group in runs], 1)
    return average_seeds(values, generator)


def common_images(runs: Sequence[Sequence[ImageCounts]]) -> int:
    """Return the number of images that all settings and seeds were evaluated on.

    Raises
    ------
    UserError
        As `resample_miou`.
    """
    seeds = {len(group) for group in runs}
    names = {counts.names for group in runs for counts in group}
    if len(seeds) != 1 or 0 in seeds:
        raise UserError(f"paired bootstrap: expected the same seeds for every setting, got {sorted(seeds)} of them")
    if len(names) != 1:
        raise UserError("paired bootstrap: the runs were evaluated on different images; evaluate them again")
    return len(next(iter(names)))


def average_seeds(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Average resampled values, shape (R, G, S), over seeds that are drawn anew in every resample; shape (R, G)."""
    resamples, _, seeds = values.shape
    if seeds == 1:
        return values[:, :, 0]
    drawn = generator.integers(seeds, size=(resamples, 1, seeds))
    return np.take_along_axis(values, np.broadcast_to(drawn, values.shape), 2).mean(2)


def interval(estimate: float, resampled: np.ndarray, level: float = LEVEL) -> Interval:
    """Return the percentile interval of a resampled quantity around its estimate."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(estimate), float(low), float(high))


def paired_difference(
    run: Sequence[ImageCounts],
    baseline: Sequence[ImageCounts],
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Interval:
    """Estimate the mIoU of a setting minus its baseline's, in percentage points, with its interval.

    Parameters
    ----------
    run, baseline : sequence of ImageCounts
        One per seed, in the same order.
    """
    resampled = resample_miou([run, baseline], generator, resamples)
    estimate = np.mean([float(miou(a)[0] - miou(b)[0]) for a, b in zip(run, baseline, strict=True)])
    return interval(float(estimate), resampled[:, 0] - resampled[:, 1], level)
