"""Table embedding: how well pixel embeddings are spread by class, the numbers behind the t-SNE pictures.

All similarities are cosines of embeddings scaled to unit length. Pairs of pixels are counted within and across images;
intervals over images leave out whole ones, since pixels of one image are no independent draws. The neighbours and the
linear probe never look at a pixel's own image. The file reads from the printed table down to its metrics.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import uncertainty
from analysis.figures import NOT_COMPARABLE, features_file
from analysis.figures.tsne import unit_rows
from analysis.latex_text import quote
from analysis.tables import EMBEDDING
from analysis.tables.cells import Cell, CellKind, Side
from analysis.tables.layout import PrintedTable, Record, measured_caption
from analysis.tables.values import VALUES
from analysis.uncertainty import FEWEST_SEEDS, LEVEL
from pne.counts import mean_of_known
from pne.errors import UserError
from pne.extract.archives import Features
from pne.spec import ResolvedTable, ResolvedTrack

Array = NDArray[np.floating]
Integers = NDArray[np.integer]
Measured = dict[tuple[str, str], Array]


class Metric(NamedTuple):
    """Head of a metric's column, whether more is better (None: neither end is good), and the digits printed."""

    head: str
    higher_is_better: bool | None
    decimals: int = 3


METRICS = {
    "alignment": Metric("align.", False),
    "uniformity": Metric("unif.", None),
    "intra_cosine": Metric("cos within", True),
    "inter_cosine": Metric("cos between", False),
    "distance_ratio": Metric("between/within", True, 2),
    "silhouette": Metric("silhouette", True),
    "knn_purity": Metric("kNN (%)", True, 1),
    "probe_accuracy": Metric("probe (%)", True, 1),
}
ARROWS = {True: "↑", False: "↓", None: ""}
OVERALL = "all"
NEIGHBOURS = 10
FOLDS = 5
COLUMNS = (
    *("row", "space", "baseline", "scope", "metric", "value", "low", "high", "delta", "delta_low", "delta_high"),
    *("delta_p", "image_low", "image_high", "by_seed", "seeds", "pixels", "images", "smallest_class", "largest_class"),
)
SPACES = {"penultimate": "penultimate layer", "projection": "projection"}
NOTE = (
    "Embeddings are scaled to unit length. Alignment: mean squared distance of two pixels of one class, exactly 2 − 2"
    " · cos within. Uniformity: log of the mean of exp(−2 · squared distance) over all pairs of pixels. cos: mean "
    "cosine of two pixels of one class, of two classes. Between/within: mean squared distance of two pixels of two "
    "classes over that of one class. Silhouette: mean, with cosine distance. kNN: share of the 10 nearest pixels of "
    "other images that are of the same class. Probe: accuracy of a linear classifier fitted on other images. "
    "Uniformity counts pixels alike, everything else classes; it has no better end, since it falls where classes "
    "collapse to points as well as where all pixels spread. ↑, ↓: higher, lower is better; bold: best of the block. "
    "The CSV file holds more: the projection by class, and all pairs of the classes named here."
)

OF_SEEDS = (
    "Measured: mean over n = {} seeds. Brackets (sub- and superscripts): 95 % interval over seeds; the CSV file holds"
    " those over test images."
)
OF_IMAGES = (
    "Measured: n = {} seed{}; how much another seed would differ is not known, and nothing is starred. Brackets (sub-"
    " and superscripts): 95 % interval over test images; silhouettes, neighbours and probe are not computed again for"
    " it."
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
    heads = ["", *(f"{metric.head} {ARROWS[metric.higher_is_better]}".strip() for metric in METRICS.values())]
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
    best = {True: others.max(), False: others.min(), None: np.nan}[metric.higher_is_better]
    of_seeds = line.seeds >= FEWEST_SEEDS
    return Cell(
        CellKind.MEASURED,
        value=line.value,
        interval=(line.low, line.high) if of_seeds else (line.image_low, line.image_high),
        star=bool(line.delta_p <= 1 - LEVEL),
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
        OF_SEEDS.format(seeds) if seeds >= FEWEST_SEEDS else OF_IMAGES.format(seeds, "s" if seeds > 1 else ""),
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
    text = f"*: differs from {kind}, {names}, at 5 % over seeds, after Holm over the block."
    without = [space for space in dict.fromkeys(numbers["space"]) if space not in set(compared["space"])]
    if without:
        spaces = " or ".join(SPACES[space] for space in without)
        text += f" No baseline has a {spaces}, so that nothing is marked there."
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
    layout = track.declaration.datasets[table.declaration.dataset].layout
    return measure_rows(features, {key: row.baseline for key, row in rows.items()}, layout)


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
    features: Mapping[str, Sequence[Features]], baselines: Mapping[str, str | None], dataset: str = ""
) -> pd.DataFrame:
    """Measure every row in every space.

    Parameters
    ----------
    features : mapping
        By key of the row, the sampled features of each seed.
    baselines : mapping
        By key of the row, the row that it is compared with, or None.
    dataset : str
        See `analysis.uncertainty.image_blocks`.

    Returns
    -------
    DataFrame
        Columns as in `COLUMNS`: where the baseline has no such space, as cross entropy has no projection, ``baseline``
        is empty and so are the differences. ``low`` and ``high`` are over seeds, empty with fewer than three, as the
        ends of differences are; ``delta_p`` is after Holm over the space and scope; ``by_seed`` are the values of each
        seed. ``smallest_class`` and ``largest_class`` count pixels.

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
            key: [_measure(part, space, dataset) for part in of_row]
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
    numbers = pd.concat(frames, ignore_index=True)
    compared = numbers[numbers["delta_p"].notna()].groupby(["space", "scope"])["delta_p"]
    numbers["delta_p"] = compared.transform(uncertainty.holm)  # NaN elsewhere
    return numbers


def _measure(part: Features, space: str, dataset: str) -> Measured:
    names = part.classes.tolist()
    blocks_of = uncertainty.image_blocks(part.names.tolist(), dataset)[part.image]
    weights = uncertainty.leave_out(np.unique(blocks_of, return_inverse=True)[1])
    return measure(getattr(part, space), part.label, part.image, names, focus_classes(names), weights)


def _check_pairs(parts: Mapping[str, Sequence[Features]]) -> None:
    reference, *_ = next(iter(parts.values()))
    for part in [part for of_row in parts.values() for part in of_row]:
        names = ("image", "position", "label")
        if not all(np.array_equal(getattr(part, name), getattr(reference, name)) for name in names):
            runs = f"{part.about['run']} and {reference.about['run']}"
            raise UserError(f"{runs}: sampled different pixels; extract both anew: python -m pne.extract SPEC ...")
    seeds = {key: len(of_row) for key, of_row in parts.items()}
    if len(set(seeds.values())) != 1:
        raise UserError(f"table {EMBEDDING}: expected as many seeds in every row, got {seeds}; extract those that lack")


def knn_purity(unit: Array, labels: Integers, images: Integers, k: int = NEIGHBOURS) -> Array:
    """Share of each pixel's k nearest pixels (cosine, in other images) that are of its class, shape (n,)."""
    similarity = unit @ unit.T
    similarity[images[:, None] == images[None]] = -np.inf
    k = min(k, int(np.isfinite(similarity).sum(1).min()))
    if k == 0:
        return np.full(len(labels), np.nan)
    nearest = np.argpartition(-similarity, k - 1, axis=1)[:, :k]
    return (labels[nearest] == labels[:, None]).mean(1)


def probe_hits(embeddings: Array, labels: Integers, images: Integers) -> Array:
    """Whether a linear classifier fitted on other images names each pixel's class, shape (n,).

    Multinomial logistic regression on standardised embeddings, five folds of whole images.
    """
    from sklearn import linear_model, model_selection, pipeline, preprocessing

    folds = min(FOLDS, len(np.unique(images)))
    if folds < 2:
        return np.full(len(labels), np.nan)
    hits = np.zeros(len(labels))
    for fitted, held_out in model_selection.GroupKFold(folds).split(embeddings, labels, images):
        if len(np.unique(labels[fitted])) < 2:
            hits[held_out] = labels[fitted][0] == labels[held_out]
            continue
        regression = linear_model.LogisticRegression(C=0.1, max_iter=500)
        probe = pipeline.make_pipeline(preprocessing.StandardScaler(), regression)
        hits[held_out] = probe.fit(embeddings[fitted], labels[fitted]).predict(embeddings[held_out]) == labels[held_out]
    return hits


def measure(
    embeddings: Array, labels: Integers, images: Integers, names: Sequence[str], focus: Sequence[str], weights: Array
) -> Measured:
    """Compute every metric of one run, for all classes together, for each class in focus and for pairs of them.

    Averages over classes weigh every class alike.

    Parameters
    ----------
    embeddings : ndarray, shape (n, D), floating
        Not normalised; a zero embedding stays zero.
    labels, images : ndarray, shape (n,), integer
        Class and image of each pixel.
    names : sequence of str
        Class names by label.
    focus : sequence of str
        Classes to report one by one; those that the sample lacks are left out.
    weights : ndarray, shape (R, n)
        How often each pixel counts in each sample, see `analysis.uncertainty.leave_out`.

    Returns
    -------
    dict of (scope, metric) to ndarray, shape (R,)
        Scopes are "all", a class name, or "one, other" for the cosine between two classes.
    """
    from sklearn import metrics  # takes most of a second

    unit = unit_rows(embeddings)
    classes, cosines = class_cosines(unit, labels, weights)
    intra = np.diagonal(cosines, axis1=1, axis2=2)
    inter = mean_of_known(np.where(np.eye(len(classes), dtype=bool), np.nan, cosines))
    silhouette = np.full(len(unit), np.nan)
    if 1 < len(classes) < len(unit):
        distance = np.clip(1 - unit @ unit.T, 0, 2)
        np.fill_diagonal(distance, 0)
        silhouette = metrics.silhouette_samples(distance, labels, metric="precomputed")
    member = (labels[:, None] == np.asarray(classes)[None]).astype(np.float64)
    total = weights @ member

    def class_means(values: Array) -> Array:
        """Weigh per-pixel values by class, shape (R, K); NaN where a sample lacks the class."""
        sums = weights @ (member * values[:, None])
        return np.divide(sums, total, out=np.full_like(sums, np.nan), where=total > 0)

    by_class = {
        "alignment": 2 - 2 * intra,  # |x - y|^2 of unit vectors
        "intra_cosine": intra,
        "inter_cosine": inter,
        "distance_ratio": np.divide(1 - inter, 1 - intra, out=np.full_like(intra, np.nan), where=intra < 1 - 1e-9),
        "silhouette": class_means(silhouette),
        "knn_purity": 100 * class_means(knn_purity(unit, labels, images)),
        "probe_accuracy": 100 * class_means(probe_hits(embeddings, labels, images)),
    }
    result = {(OVERALL, name): mean_of_known(values) for name, values in by_class.items()}
    result[OVERALL, "uniformity"] = uniformity(unit, weights)
    place = {names[label]: index for index, label in enumerate(classes)}
    present = [(name, place[name]) for name in focus if name in place]
    for name, i in present:
        result |= {(name, metric): values[:, i] for metric, values in by_class.items()}
    for (one, i), (other, j) in combinations(present, 2):
        result[f"{one}, {other}", "inter_cosine"] = cosines[:, i, j]
    return result


def summarise(measured: Sequence[Measured], baseline: Sequence[Measured] | None = None) -> pd.DataFrame:
    """Estimate every metric over seeds, its difference to a baseline, and what other test images would give.

    Parameters
    ----------
    measured, baseline : sequence of dict
        From `measure`, one per seed, on the same samples of images.

    Returns
    -------
    DataFrame
        `COLUMNS` from scope to by_seed; of differences NaN without a baseline, their p values not adjusted.
    """
    records = []
    for scope, metric in measured[0]:
        values = np.stack([run[scope, metric] for run in measured], -1)  # (1 + B, n)
        if not np.isfinite(values[0]).all():
            continue
        record = {"scope": scope, "metric": metric, "by_seed": " ".join(map(repr, values[0].tolist()))}
        record |= zip(("value", "low", "high"), uncertainty.over_seeds(values[0]).interval(), strict=True)
        record |= zip(("image_low", "image_high"), uncertainty.image_interval(values.mean(-1))[1:], strict=True)
        if baseline is not None:
            paired = uncertainty.over_seeds(values[0] - [run[scope, metric][0] for run in baseline])
            record |= zip(("delta", "delta_low", "delta_high"), paired.interval(), strict=True)
            record["delta_p"] = uncertainty.difference_p(paired)
        records.append(record)
    names = [name for name in COLUMNS[3:15] if name != "seeds"]
    return pd.DataFrame(records).reindex(columns=names).astype(dict.fromkeys(names[2:-1], float))


def class_cosines(unit: Array, labels: Integers, weights: Array) -> tuple[list[int], Array]:
    """Average the cosine over all pairs of pixels of two classes; a pixel is never paired with itself.

    Parameters
    ----------
    unit : ndarray, shape (n, D)
        Embeddings of unit length.
    labels : ndarray, shape (n,)
    weights : ndarray, shape (R, n)
        0 or 1: whether each sample has the pixel.

    Returns
    -------
    classes : list of int
        The classes that occur, sorted; K of them.
    cosines : ndarray, shape (R, K, K)
        NaN where a sample holds no pair.
    """
    classes = np.unique(labels)
    sums = np.stack([weights[:, labels == one] @ unit[labels == one] for one in classes], 1)  # (R, K, D)
    member = (labels[:, None] == classes[None]).astype(np.float64)
    number = (weights @ member)[:, :, None]
    dots, pairs = (total @ total.transpose(0, 2, 1) for total in (sums, number))
    diagonal = np.arange(len(classes))
    dots[:, diagonal, diagonal] -= weights @ (member * (unit**2).sum(1, keepdims=True))
    pairs[:, diagonal, diagonal] -= number[:, :, 0]
    return classes.tolist(), np.divide(dots, pairs, out=np.full_like(dots, np.nan), where=pairs > 0.5)


def uniformity(unit: Array, weights: Array) -> Array:
    """Log of the mean Gaussian potential exp(-2 |x - y|^2) over all pairs (Wang & Isola 2020), per sample.

    0 when all embeddings are equal. Pixels are not paired with themselves.
    """
    potential = np.exp(-4 * (1 - np.clip(unit @ unit.T, -1, 1)))  # |x - y|^2 = 2 - 2 cos
    np.fill_diagonal(potential, 0)
    total, number = ((weights @ potential) * weights).sum(1), weights.sum(1)
    pairs = number**2 - number
    return np.log(np.divide(total, pairs, out=np.full_like(total, np.nan), where=pairs > 0.5))


# Cells that claims name: every metric of all classes, of each class in focus, and of pairs of these.
CELLS = {
    f"{metric}_{'_'.join(classes)}" if classes else metric: (metric, classes)
    for metric in METRICS
    for classes in ((), *((name,) for name in NAMED_CLASSES), *combinations(NAMED_CLASSES, 2))
    if len(classes) < 2 or metric == "inter_cosine"
}


def embedding_values(track: ResolvedTrack, folder: Path) -> pd.DataFrame:
    """Return the printed table's numbers in the penultimate layer as lines of `analysis.tables.values.collect_values`.

    Where the table has not been made, as it never is from the archive, every line says so.
    """
    table, path = track.tables.get(EMBEDDING), folder / f"{EMBEDDING}.csv"
    rows = [key for key, row in table.rows.items() if row.runs] if table is not None and table.available else []
    made = path.exists() and not track.archived
    numbers = read_numbers(path) if made else pd.DataFrame(columns=list(COLUMNS))
    numbers = numbers[numbers["space"] == "penultimate"]
    known = {(line.row, line.metric, line.scope.lower()): str(line.by_seed) for line in numbers.itertuples()}
    note = "The data set has no such class." if made else "Table embedding has not been made."
    lines = []
    for row, (column, (metric, classes)) in product(rows, CELLS.items()):
        scopes = (", ".join(names) or OVERALL for names in product(*(NAMED_CLASSES[name] for name in classes)))
        found = next((known[row, metric, scope] for scope in scopes if (row, metric, scope) in known), None)
        values = [None] if found is None else [float(value) for value in found.split()]
        line = {"table": EMBEDDING, "row": row, "column": column, "notes": (note,) if found is None else ()}
        lines += [line | {"seed": seed, "value": value} for seed, value in enumerate(values)]
    return pd.DataFrame(lines, columns=list(VALUES), dtype=object)
