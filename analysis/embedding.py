"""How well pixel embeddings are spread by class: the numbers behind the t-SNE pictures, with bootstrap intervals.

All similarities are cosines of embeddings scaled to unit length. Pairs of pixels are counted within and across images;
the intervals come from resampling whole images, since pixels of one image are no independent draws. The neighbours
and the linear probe never look at a pixel's own image.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import silhouette_samples
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from analysis.embedding_pairs import class_cosines, uniformity
from analysis.statistics import draw_images, draw_seeds, streams, widen

Array = NDArray[np.floating]

METRICS = {
    "alignment": "alignment",
    "uniformity": "uniformity",
    "intra_cosine": "cosine within classes",
    "inter_cosine": "cosine between classes",
    "silhouette": "silhouette",
    "knn_purity": "kNN purity",
    "probe_accuracy": "linear probe accuracy",
}
HIGHER_IS_BETTER = {
    "alignment": False,
    "uniformity": False,
    "intra_cosine": True,
    "inter_cosine": False,
    "silhouette": True,
    "knn_purity": True,
    "probe_accuracy": True,
}
OVERALL = "all"
NEIGHBOURS = 10
FOLDS = 5


@dataclass(frozen=True)
class Sample:
    """Pixels of one run.

    Attributes
    ----------
    embeddings : ndarray, shape (n, D), floating
        Not normalised.
    labels, images : ndarray, shape (n,), integer
        Class and image of each pixel.
    """

    embeddings: Array
    labels: NDArray[np.integer]
    images: NDArray[np.integer]

    @property
    def unit(self) -> Array:
        """Embeddings of length one; a zero embedding stays zero."""
        x = self.embeddings.astype(np.float64)
        return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def image_weights(images: NDArray[np.integer], resamples: int, seed: int) -> NDArray[np.float64]:
    """Draw how often each pixel's image occurs when images are drawn with replacement.

    Returns
    -------
    ndarray, shape (1 + resamples, n), float64
        The first line holds ones: the sample itself.
    """
    known, place = np.unique(images, return_inverse=True)
    drawn = draw_images(len(known), resamples, streams(seed)[0])
    return np.concatenate([np.ones((1, len(images))), drawn[:, place].astype(np.float64)])


def knn_purity(unit: Array, labels: NDArray[np.integer], images: NDArray[np.integer], k: int = NEIGHBOURS) -> Array:
    """Share of each pixel's k nearest pixels (cosine, in other images) that are of its class, shape (n,)."""
    similarity = unit @ unit.T
    similarity[images[:, None] == images[None]] = -np.inf
    k = min(k, int(np.isfinite(similarity).sum(1).min()))
    if k == 0:
        return np.full(len(labels), np.nan)
    nearest = np.argpartition(-similarity, k - 1, axis=1)[:, :k]
    return (labels[nearest] == labels[:, None]).mean(1)


def probe_hits(embeddings: Array, labels: NDArray[np.integer], images: NDArray[np.integer]) -> Array:
    """Whether a linear classifier fitted on other images names each pixel's class, shape (n,).

    Multinomial logistic regression on standardised embeddings, five folds of whole images.
    """
    folds = min(FOLDS, len(np.unique(images)))
    if folds < 2:
        return np.full(len(labels), np.nan)
    hits = np.zeros(len(labels))
    for fitted, held_out in GroupKFold(folds).split(embeddings, labels, images):
        if len(np.unique(labels[fitted])) < 2:
            hits[held_out] = labels[fitted][0] == labels[held_out]
            continue
        probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500))
        hits[held_out] = probe.fit(embeddings[fitted], labels[fitted]).predict(embeddings[held_out]) == labels[held_out]
    return hits


def _class_means(values: Array, labels: NDArray[np.integer], classes: Sequence[int], weights: Array) -> Array:
    """Weighted mean of per-pixel values by class, shape (R, K); NaN where a resample lacks the class."""
    member = (labels[:, None] == np.asarray(classes)[None]).astype(np.float64)
    total = weights @ member
    sums = weights @ (member * values[:, None])
    return np.divide(sums, total, out=np.full_like(sums, np.nan), where=total > 0)


def _mean(values: Array) -> Array:
    """Mean over the last axis of what is there; NaN where nothing is."""
    there = np.isfinite(values)
    count = there.sum(-1)
    total = np.where(there, values, 0).sum(-1)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def measure(sample: Sample, names: Sequence[str], focus: Sequence[str], weights: Array) -> dict[tuple[str, str], Array]:
    """Compute every metric of one run, for all classes together, for each class in focus and for pairs of them.

    Averages over classes weigh every class alike.

    Parameters
    ----------
    sample : Sample
    names : sequence of str
        Class names by label.
    focus : sequence of str
        Classes to report one by one; those that the sample lacks are left out.
    weights : ndarray, shape (R, n)
        See `image_weights`.

    Returns
    -------
    dict of (scope, metric) to ndarray, shape (R,)
        Scopes are "all", a class name, or "one, other" for the cosine between two classes.
    """
    unit = sample.unit
    classes, cosines = class_cosines(unit, sample.labels, sample.images, weights)
    own = np.arange(len(classes))
    intra = cosines[:, own, own]
    others = np.where(np.eye(len(classes), dtype=bool), np.nan, cosines)
    inter = _mean(others)
    silhouette = np.full(len(unit), np.nan)
    if 1 < len(classes) < len(unit):
        distance = np.clip(1 - unit @ unit.T, 0, 2)
        np.fill_diagonal(distance, 0)
        silhouette = silhouette_samples(distance, sample.labels, metric="precomputed")
    by_class = {
        "alignment": 2 - 2 * intra,  # |x - y|^2 of unit vectors
        "intra_cosine": intra,
        "inter_cosine": inter,
        "silhouette": _class_means(silhouette, sample.labels, classes, weights),
        "knn_purity": 100
        * _class_means(knn_purity(unit, sample.labels, sample.images), sample.labels, classes, weights),
        "probe_accuracy": 100
        * _class_means(probe_hits(sample.embeddings, sample.labels, sample.images), sample.labels, classes, weights),
    }
    result = {(OVERALL, name): _mean(values) for name, values in by_class.items()}
    result[OVERALL, "uniformity"] = uniformity(unit, sample.images, weights)
    present = [name for name in focus if name in names and list(names).index(name) in classes]
    place = {name: classes.index(list(names).index(name)) for name in present}
    for name in present:
        result |= {(name, metric): values[:, place[name]] for metric, values in by_class.items()}
    for i, one in enumerate(present):
        for other in present[i + 1 :]:
            result[f"{one}, {other}", "inter_cosine"] = cosines[:, place[one], place[other]]
    return result


def average(measured: Sequence[dict[tuple[str, str], Array]], seed: int = 0) -> dict[tuple[str, str], Array]:
    """Average the results of `measure` over seeds; with several, resample these too.

    Parameters
    ----------
    measured : sequence of dict
        One per seed, of the same pixels and resamples of images.
    seed : int
        Of the draws of seeds: settings with the same number of seeds see the same draws, so that differences between
        them are paired. What the draws add is widened (`analysis.statistics.widening`).

    Returns
    -------
    dict of (scope, metric) to ndarray, shape (R,)
        The first value is the mean itself.
    """
    seeds, resamples = len(measured), len(next(iter(measured[0].values()))) - 1
    drawn = draw_seeds(seeds, resamples, streams(seed)[1])
    result = {}
    for key in measured[0]:
        values = np.stack([run[key] for run in measured], 1)  # (1 + R, S)
        means = values.mean(1)
        over_drawn = np.take_along_axis(values[1:], drawn, 1).mean(1)
        result[key] = np.concatenate([means[:1], widen(means[1:], over_drawn, seeds)])
    return result


def summarise(
    measured: dict[tuple[str, str], Array], baseline: dict[tuple[str, str], Array] | None = None, level: float = 0.95
) -> pd.DataFrame:
    """Take percentile intervals, of the values and of the differences to a baseline.

    Parameters
    ----------
    measured, baseline : dict
        From `measure` or `average`, with the same resamples of images.

    Returns
    -------
    DataFrame
        Columns scope, metric, value, low, high, delta, delta_low, delta_high; the last three NaN without a baseline.
    """
    records = []
    for (scope, metric), values in measured.items():
        if not np.isfinite(values[0]):
            continue
        record = [scope, metric, *_interval(values, level)]
        if baseline is not None and (scope, metric) in baseline:
            record += _interval(values - baseline[scope, metric], level)
        else:
            record += [np.nan] * 3
        records.append(record)
    columns = ["scope", "metric", "value", "low", "high", "delta", "delta_low", "delta_high"]
    return pd.DataFrame(records, columns=columns)


def _interval(values: Array, level: float) -> list[float]:
    spread = values[1:][np.isfinite(values[1:])]
    tail = 50 * (1 - level)
    low, high = np.percentile(spread, [tail, 100 - tail]) if len(spread) else (np.nan, np.nan)
    return [float(values[0]), float(low), float(high)]
