"""Table embedding: how well pixel embeddings are spread by class, the numbers behind the t-SNE pictures.

All similarities are cosines of embeddings scaled to unit length. Pairs of pixels are counted within and across images;
the intervals come from resampling whole images, since pixels of one image are no independent draws. The neighbours
and the linear probe never look at a pixel's own image. The file reads from the printed table down to its metrics.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import silhouette_samples
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from analysis.figures import NOT_COMPARABLE, features_file
from analysis.figures.tsne import unit_rows
from analysis.latex_text import quote
from analysis.statistics import draw_images, draw_seeds, streams, widen
from analysis.tables import EMBEDDING
from analysis.tables.cells import Cell, CellKind, Side
from analysis.tables.layout import ONE_SEED, PrintedTable, Record, measured_caption
from pne.counts import mean_of_known
from pne.errors import UserError
from pne.extract.archives import Features
from pne.spec import ResolvedTable, ResolvedTrack

Array = NDArray[np.floating]
Measured = dict[tuple[str, str], Array]


class Metric(NamedTuple):
    """Head of a metric's column, whether more is better, and the digits printed."""

    head: str
    higher_is_better: bool
    decimals: int = 3


METRICS = {
    "alignment": Metric("align.", False),
    "uniformity": Metric("unif.", False),
    "intra_cosine": Metric("cos within", True),
    "inter_cosine": Metric("cos between", False),
    "silhouette": Metric("silhouette", True),
    "knn_purity": Metric("kNN (%)", True, 1),
    "probe_accuracy": Metric("probe (%)", True, 1),
}
OVERALL = "all"
NEIGHBOURS = 10
FOLDS = 5
RESAMPLES = 1000
COLUMNS = (
    *("row", "space", "baseline", "scope", "metric", "value", "low", "high", "delta", "delta_low", "delta_high"),
    *("seeds", "pixels", "images", "smallest_class", "largest_class"),
)
SPACES = {"penultimate": "penultimate layer", "projection": "projection"}
NOTE = (
    "Embeddings are scaled to unit length. Alignment: mean squared distance of two pixels of one class, exactly "
    "2 − 2 · cos within. Uniformity: log of the mean of exp(−2 · squared distance) over all pairs of pixels. cos: mean "
    "cosine of two pixels of one class, of two classes. Silhouette: mean, with cosine distance. kNN: share of the 10 "
    "nearest pixels of other images that are of the same class. Probe: accuracy of a linear classifier fitted on other "
    "images. Uniformity counts pixels alike, everything else classes. ↑, ↓: higher, lower is better; bold: best of the "
    "block. Brackets (sub- and superscripts): 95 % interval over resampled test images; silhouettes, neighbours and "
    "probe are not computed again for them. The CSV file holds more: the projection by class, and all pairs of the "
    "classes named here."
)


def print_embedding(table: ResolvedTable, track: ResolvedTrack, numbers: pd.DataFrame) -> PrintedTable:
    """Lay the metrics out, a block for each space and scope.

    Parameters
    ----------
    table : ResolvedTable
    track : ResolvedTrack
    numbers : DataFrame
        From `measure_rows`.
    """
    rows = {key: row.declaration for key, row in table.rows.items() if row.runs}
    cells: dict[str, dict[Side, Cell]] = {key: {} for key in rows}
    printed = []
    for space, scope in blocks(numbers):
        block = numbers[(numbers["space"] == space) & (numbers["scope"] == scope)]
        subject = "all classes" if scope == OVERALL else scope.replace(", ", " against ")
        lines = [(Cell(CellKind.LABEL, text=f"{SPACES[space]}, {subject}", span=len(METRICS) + 1),)]
        for key in dict.fromkeys(key for key in rows if key in set(block["row"])):
            of_row = {line.metric: line for line in block[block["row"] == key].itertuples()}
            line = [_cell(of_row.get(name), block, metric) for name, metric in METRICS.items()]
            cells[key] |= {Side(name, f"{space} {scope}"): cell for name, cell in zip(METRICS, line, strict=True)}
            lines.append((Cell(CellKind.LABEL, text=rows[key].label), *line))
        printed.append(tuple(lines))
    heads = ["", *(f"{metric.head} {'↑' if metric.higher_is_better else '↓'}" for metric in METRICS.values())]
    return PrintedTable(
        name=EMBEDDING,
        label=EMBEDDING,
        caption=measured_caption(table, track),
        alignment=("l", *("c",) * len(METRICS)),
        head=(tuple(Cell(CellKind.LABEL, text=head) for head in heads),),
        blocks=tuple(printed),
        records=tuple(Record(key, row, cells[key], tuple(table.rows[key].runs.values())) for key, row in rows.items()),
        numbers=numbers,
        remarks=_remarks(table, track, numbers),
        spacious=True,
    )


def blocks(numbers: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (space, scope) of each printed block; the CSV holds all others too.

    All classes in both spaces, then in the penultimate layer each class in focus and the first pair of them.
    """
    known = list(dict.fromkeys(zip(numbers["space"], numbers["scope"], strict=True)))
    overall = [(space, OVERALL) for space in SPACES if (space, OVERALL) in known]
    scopes = [scope for space, scope in known if space == "penultimate" and scope != OVERALL]
    pairs = [scope for scope in scopes if ", " in scope]
    return overall + [("penultimate", scope) for scope in scopes if scope not in pairs[1:]]


def _cell(line: tuple | None, block: pd.DataFrame, metric: Metric) -> Cell:
    """Print one number: bold is the best of its block, a star marks a certain difference to the baseline."""
    if line is None:
        return Cell(CellKind.EMPTY)
    others = block.loc[block["metric"] == line.metric, "value"]
    best = others.max() if metric.higher_is_better else others.min()
    return Cell(
        CellKind.MEASURED,
        value=line.value,
        interval=(line.low, line.high),
        star=bool(line.delta_low > 0 or line.delta_high < 0),
        decimals=metric.decimals,
        bold=len(others) > 1 and line.value == best,
    )


def _remarks(table: ResolvedTable, track: ResolvedTrack, numbers: pd.DataFrame) -> list[str]:
    first, seeds = numbers.iloc[0], int(numbers["seeds"].iloc[0])
    data = f"Data: {quote(track.declaration.datasets[table.declaration.dataset].title)} (track {quote(track.name)})."
    return [
        NOTE,
        compared_with(numbers, {key: row.declaration.label for key, row in table.rows.items() if row.runs}),
        f"{first['pixels']} pixels of {first['images']} test images, {first['smallest_class']} to "
        f"{first['largest_class']} of a class, the same for every row.",
        ONE_SEED if seeds == 1 else f"Measured: mean over n = {seeds} seeds; the intervals hold their spread too.",
        data if track.declaration.comparable else f"{data} {NOT_COMPARABLE}",
    ]


def compared_with(numbers: pd.DataFrame, labels: Mapping[str, str]) -> str:
    """Say what stars compare with and where there are none; LaTeX text."""
    compared = numbers[numbers["baseline"].isin(list(labels))]
    baselines = list(dict.fromkeys(compared["baseline"]))
    if not baselines:
        return "No row has a baseline, so that there are no stars."
    names = " or ".join(labels[key] for key in baselines)
    kind = "its baseline" if len(baselines) == 1 else "its own baseline (column baseline of the CSV file)"
    text = f"*: the interval of a row's difference to {kind}, {names}, on the same resamples leaves 0 out."
    without = [space for space in dict.fromkeys(numbers["space"]) if space not in set(compared["space"])]
    if without:
        text += (
            f" No baseline has a {' or '.join(SPACES[space] for space in without)}, so that nothing is marked there."
        )
    return text


def read_numbers(path: Path) -> pd.DataFrame:
    """Read the numbers of the printed table from its CSV file.

    Raises
    ------
    UserError
        If the table has not been made.
    """
    mend = f"`python -m analysis.tables --table {EMBEDDING}` makes it"
    if not path.exists():
        raise UserError(f"{path}: no such file; {mend}")
    numbers = pd.read_csv(path)
    missing = [name for name in COLUMNS if name not in numbers.columns]
    if missing:
        raise UserError(f"{path}: no column {', '.join(missing)}; {mend}")
    return numbers


def measure_table(table: ResolvedTable, track: ResolvedTrack) -> pd.DataFrame:
    """Measure the stored features of every row.

    Raises
    ------
    UserError
        If features are missing.
    """
    rows = {key: row for key, row in table.rows.items() if row.runs}
    features = {
        key: [Features.read(features_file(track.runs[run])) for run in row.runs.values()] for key, row in rows.items()
    }
    return measure_rows(features, {key: row.baseline for key, row in rows.items()})


# Classes that the paper names, and what data sets call them.
NAMED_CLASSES = {"vegetation": ("vegetation", "tree"), "building": ("building",), "pole": ("pole",)}


def focus_classes(classes: Iterable[str]) -> list[str]:
    """Return a data set's own names of the classes that the paper names.

    >>> focus_classes(["Sky", "Building", "Pole", "Tree"])
    ['Tree', 'Building', 'Pole']
    """
    known = {name.lower(): name for name in classes}
    return [known[name] for names in NAMED_CLASSES.values() for name in names if name in known]


def measure_rows(
    features: Mapping[str, Sequence[Features]], baselines: Mapping[str, str | None], resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Measure every row in every space.

    Parameters
    ----------
    features : mapping
        By key of the row, the sampled features of each seed.
    baselines : mapping
        By key of the row, the row that it is compared with, or None.
    resamples : int

    Returns
    -------
    DataFrame
        Columns as in `COLUMNS`: where the baseline has no such space, as cross entropy has no projection, ``baseline``
        is empty and so are the differences. ``smallest_class`` and ``largest_class`` count pixels.

    Raises
    ------
    UserError
        If the runs sampled different pixels or have different numbers of seeds, so that they cannot be paired.
    """
    parts = {key: [seed.select(seed.by_label) for seed in seeds] for key, seeds in features.items()}
    _check_pairs(parts)
    frames = []
    for space in SPACES:
        results = {
            key: average([_measure(part, space, resamples) for part in of_row])
            for key, of_row in parts.items()
            if all(getattr(part, space) is not None for part in of_row)
        }
        for key, result in results.items():
            baseline = baselines[key] if baselines[key] in results else None
            first = parts[key][0]
            _, sizes = np.unique(first.label, return_counts=True)
            frame = summarise(result, results.get(baseline)).assign(
                row=key,
                space=space,
                baseline=baseline or "",
                seeds=len(parts[key]),
                pixels=len(first.label),
                images=len(np.unique(first.image)),
                smallest_class=sizes.min(),
                largest_class=sizes.max(),
            )
            frames.append(frame[list(COLUMNS)])
    return pd.concat(frames, ignore_index=True)


def _measure(part: Features, space: str, resamples: int) -> dict:
    sample = Sample(getattr(part, space), part.label, part.image)
    names = part.classes.tolist()
    return measure(sample, names, focus_classes(names), image_weights(part.image, resamples, seed=0))


def _check_pairs(parts: Mapping[str, Sequence[Features]]) -> None:
    reference, *_ = next(iter(parts.values()))
    for part in [part for of_row in parts.values() for part in of_row]:
        same = len(part.label) == len(reference.label) and all(
            np.array_equal(getattr(part, name), getattr(reference, name)) for name in ("image", "position", "label")
        )
        if not same:
            runs = f"{part.about['run']} and {reference.about['run']}"
            raise UserError(f"{runs}: sampled different pixels; extract both anew: python -m pne.extract SPEC ...")
    seeds = {key: len(of_row) for key, of_row in parts.items()}
    if len(set(seeds.values())) != 1:
        raise UserError(f"table {EMBEDDING}: expected as many seeds in every row, got {seeds}; extract those that lack")


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
        return unit_rows(self.embeddings)


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


def measure(sample: Sample, names: Sequence[str], focus: Sequence[str], weights: Array) -> Measured:
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
    inter = mean_of_known(np.where(np.eye(len(classes), dtype=bool), np.nan, cosines))
    silhouette = np.full(len(unit), np.nan)
    if 1 < len(classes) < len(unit):
        distance = np.clip(1 - unit @ unit.T, 0, 2)
        np.fill_diagonal(distance, 0)
        silhouette = silhouette_samples(distance, sample.labels, metric="precomputed")
    member = (sample.labels[:, None] == np.asarray(classes)[None]).astype(np.float64)
    total = weights @ member

    def class_means(values: Array) -> Array:
        """Weigh per-pixel values by class, shape (R, K); NaN where a resample lacks the class."""
        sums = weights @ (member * values[:, None])
        return np.divide(sums, total, out=np.full_like(sums, np.nan), where=total > 0)

    by_class = {
        "alignment": 2 - 2 * intra,  # |x - y|^2 of unit vectors
        "intra_cosine": intra,
        "inter_cosine": inter,
        "silhouette": class_means(silhouette),
        "knn_purity": 100 * class_means(knn_purity(unit, sample.labels, sample.images)),
        "probe_accuracy": 100 * class_means(probe_hits(sample.embeddings, sample.labels, sample.images)),
    }
    result = {(OVERALL, name): mean_of_known(values) for name, values in by_class.items()}
    result[OVERALL, "uniformity"] = uniformity(unit, sample.images, weights)
    present = [name for name in focus if name in names and list(names).index(name) in classes]
    place = {name: classes.index(list(names).index(name)) for name in present}
    for name in present:
        result |= {(name, metric): values[:, place[name]] for metric, values in by_class.items()}
    for i, one in enumerate(present):
        for other in present[i + 1 :]:
            result[f"{one}, {other}", "inter_cosine"] = cosines[:, place[one], place[other]]
    return result


def average(measured: Sequence[Measured], seed: int = 0) -> Measured:
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


def summarise(measured: Measured, baseline: Measured | None = None, level: float = 0.95) -> pd.DataFrame:
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
        reference = (baseline or {}).get((scope, metric))
        record += [np.nan] * 3 if reference is None else _interval(values - reference, level)
        records.append(record)
    return pd.DataFrame(records, columns=["scope", "metric", *COLUMNS[5:11]])


def _interval(values: Array, level: float) -> list[float]:
    spread = values[1:][np.isfinite(values[1:])]
    tail = 50 * (1 - level)
    low, high = np.percentile(spread, [tail, 100 - tail]) if len(spread) else (np.nan, np.nan)
    return [float(values[0]), float(low), float(high)]


# Averages over pairs of pixels. In a resample that draws image i w_i times, a pair of different pixels of it counts
# w_i times, and a pair of a pixel of image i with one of image j counts w_i * w_j times. Pixels of two copies of one
# image are no pair: they would count as across images although they are as alike as within one (w_i^2 in all), and
# every resample would find embeddings closer together than the sample.


def _by_image(images: NDArray[np.integer], weights: Array) -> tuple[NDArray[np.float64], Array]:
    """Which pixel is of which image, shape (I, n), and how often each image was drawn, shape (R, I)."""
    _, first, place = np.unique(images, return_index=True, return_inverse=True)
    return (place[None] == np.arange(len(first))[:, None]).astype(np.float64), weights[:, first]


def class_cosines(
    unit: Array, labels: NDArray[np.integer], images: NDArray[np.integer], weights: Array
) -> tuple[list[int], Array]:
    """Average the cosine over all pairs of pixels of two classes; a pixel is never paired with itself.

    Parameters
    ----------
    unit : ndarray, shape (n, D)
        Embeddings of unit length.
    labels, images : ndarray, shape (n,)
    weights : ndarray, shape (R, n)
        How often every pixel's image was drawn.

    Returns
    -------
    classes : list of int
        The classes that occur, sorted; K of them.
    cosines : ndarray, shape (R, K, K)
        NaN where a resample holds no pair.
    """
    classes = np.unique(labels)
    member = (labels[:, None] == classes[None]).astype(np.float64)  # (n, K)
    inside, drawn = _by_image(images, weights)
    sums = np.einsum("in,nk,nd->ikd", inside, member, unit, optimize=True)  # of each image and class
    number = inside @ member  # (I, K)
    dots, pairs = (
        np.einsum("rkd,rld->rkl", total, total, optimize=True)
        for total in (np.tensordot(drawn, sums, 1), (drawn @ number)[:, :, None])
    )
    # The square of a weighted sum holds pairs within an image w^2 times, and every pixel with itself.
    excess = drawn**2 - drawn
    dots -= np.tensordot(excess, np.einsum("ikd,ild->ikl", sums, sums), 1)
    pairs -= np.tensordot(excess, number[:, :, None] * number[:, None, :], 1)
    diagonal = np.arange(len(classes))
    dots[:, diagonal, diagonal] -= weights @ (member * (unit**2).sum(1, keepdims=True))
    pairs[:, diagonal, diagonal] -= weights @ member
    return classes.tolist(), np.divide(dots, pairs, out=np.full_like(dots, np.nan), where=pairs > 0.5)


def uniformity(unit: Array, images: NDArray[np.integer], weights: Array) -> Array:
    """Log of the mean Gaussian potential exp(-2 |x - y|^2) over all pairs (Wang & Isola 2020), per resample.

    Lower is more uniform; 0 when all embeddings are equal. Pixels are not paired with themselves; pairs are weighed as
    by `class_cosines`.
    """
    potential = np.exp(-4 * (1 - np.clip(unit @ unit.T, -1, 1)))  # |x - y|^2 = 2 - 2 cos
    np.fill_diagonal(potential, 0)
    inside, drawn = _by_image(images, weights)
    excess = drawn**2 - drawn
    within = ((inside @ potential) * inside).sum(1)
    number = inside.sum(1)
    total = ((weights @ potential) * weights).sum(1) - excess @ within
    pairs = (drawn @ number) ** 2 - excess @ number**2 - drawn @ number
    return np.log(np.divide(total, pairs, out=np.full_like(total, np.nan), where=pairs > 0.5))
