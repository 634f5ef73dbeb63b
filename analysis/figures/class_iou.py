"""Change of each class's IoU from a baseline to ours, with intervals of a paired bootstrap over test images."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis.figures.style import GAIN, GREY, LOSS, MILLIMETRE, PAGE, new_figure
from analysis.statistics import LEVEL, RESAMPLES, ImageCounts, draw_images, draw_seeds, widen
from pne.errors import UserError

MOST_CLASSES = 24  # of a data set in the figure; the largest changes where there are more


def class_iou(counts: ImageCounts, weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """Compute the IoU of every class on weighted images.

    Parameters
    ----------
    counts : ImageCounts
    weights : ndarray, shape (R, I)
        How often each image counts.

    Returns
    -------
    ndarray, shape (R, C)
        Percent; NaN for a class neither labelled nor predicted.
    """
    hits = weights @ counts.hits.astype(np.float64)
    union = weights @ (counts.labelled + counts.predicted - counts.hits).astype(np.float64)
    return np.divide(100 * hits, union, out=np.full_like(hits, np.nan), where=union > 0)


def iou_changes(
    baseline: Sequence[ImageCounts],
    ours: Sequence[ImageCounts],
    classes: Sequence[str],
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> pd.DataFrame:
    """Estimate the change of each class's IoU, in percentage points.

    Baseline and ours of one seed see the same drawn images; with several seeds the seeds are drawn too, and what
    that adds is widened (`analysis.statistics.widening`).

    Parameters
    ----------
    baseline, ours : sequence of ImageCounts
        One per seed, in the same order.
    classes : sequence of str
    generator : numpy.random.Generator

    Returns
    -------
    DataFrame
        Columns class, baseline, ours, change, low, high; classes that neither run meets are left out.

    Raises
    ------
    UserError
        If the runs were evaluated on different images.
    """
    if len({counts.names for counts in [*baseline, *ours]}) != 1:
        raise UserError("change of IoU: the runs were evaluated on different images; evaluate them again")
    images, seeds = len(baseline[0].names), len(baseline)
    weights = np.concatenate([np.ones((1, images)), draw_images(images, resamples, generator)])
    before = np.stack([class_iou(counts, weights) for counts in baseline])  # (S, 1 + R, C)
    after = np.stack([class_iou(counts, weights) for counts in ours])
    change = after - before
    estimate = _nanmean(change[:, 0])
    resampled = change[:, 1:]
    drawn = draw_seeds(seeds, resamples, generator).T[:, :, None]
    over_drawn = np.take_along_axis(resampled, np.broadcast_to(drawn, resampled.shape), 0)
    spread = widen(_nanmean(resampled), _nanmean(over_drawn), seeds, level)
    records = []
    for index, name in enumerate(classes):
        if not np.isfinite(estimate[index]):
            continue
        known = spread[np.isfinite(spread[:, index]), index]
        low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
        means = [_nanmean(side[:, 0])[index] for side in (before, after)]
        records.append((name, *means, estimate[index], low, high))
    return pd.DataFrame(records, columns=["class", "baseline", "ours", "change", "low", "high"])


def _nanmean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the first axis of what is there."""
    there = np.isfinite(values)
    total = np.where(there, values, 0).sum(0)
    return np.divide(total, there.sum(0), out=np.full(total.shape, np.nan), where=there.any(0))


def largest_changes(changes: pd.DataFrame, most: int = MOST_CLASSES) -> pd.DataFrame:
    """Sort by change, largest gain first; where there are too many classes, keep the largest absolute changes."""
    kept = changes.assign(size=changes["change"].abs()).nlargest(most, "size", keep="first").drop(columns="size")
    return kept.sort_values("change", ascending=False, ignore_index=True)


def plot_changes(ax: Axes, changes: pd.DataFrame) -> None:
    """Draw one bar per class, gains and losses in their colours, faint where the interval holds 0."""
    place = np.arange(len(changes))
    gain = changes["change"].to_numpy() >= 0
    certain = ((changes["low"] > 0) | (changes["high"] < 0)).to_numpy()
    for row in place:
        ax.barh(row, changes["change"][row], color=GAIN if gain[row] else LOSS, alpha=1 if certain[row] else 0.35)
    ends = np.abs(changes[["low", "high"]].to_numpy().T - changes["change"].to_numpy())
    ax.errorbar(changes["change"], place, xerr=ends, fmt="none", ecolor="black", elinewidth=0.7, capsize=1.5)
    ax.axvline(0, color=GREY, linewidth=0.6)
    ax.set_yticks(place, changes["class"])
    ax.set_ylim(len(changes) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("change of IoU (points)")


def draw_changes(parts: Sequence[tuple[str, pd.DataFrame]]) -> Figure:
    """Draw one panel per data set."""
    longest = max(len(changes) for _, changes in parts)
    figure = new_figure(PAGE, (longest * 3.6 + 18) * MILLIMETRE)
    axes = figure.subplots(1, len(parts), squeeze=False)[0]
    for ax, (title, changes) in zip(axes, parts, strict=True):
        plot_changes(ax, changes)
        ax.set_title(title, fontsize=7)
    return figure
