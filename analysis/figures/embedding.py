"""``table_embedding``: measure the stored features of every row; print the numbers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.embedding import Sample, average, image_weights, measure, summarise
from analysis.figures.captions import NOT_COMPARABLE
from analysis.figures.declaration import features_file
from analysis.figures.embedding_table import NOTE, SPACES, compared_with, render_latex, render_markdown
from analysis.latex_text import quote
from analysis.measured_texts import ONE_SEED
from analysis.measured_texts import caption as measured_caption
from pne.declaration.resolved import ResolvedTable, ResolvedTrack
from pne.errors import UserError
from pne.extraction.archives import Features
from pne.files import write_text

TABLE = "embedding"
RESAMPLES = 1000
COLUMNS = (
    *("row", "space", "baseline", "scope", "metric", "value", "low", "high", "delta", "delta_low", "delta_high"),
    *("seeds", "pixels", "images", "smallest_class", "largest_class"),
)
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
            frame = summarise(result, None if baseline is None else results[baseline])
            frame.insert(0, "row", key)
            frame.insert(1, "space", space)
            frame.insert(2, "baseline", baseline or "")
            first = parts[key][0]
            _, sizes = np.unique(first.label, return_counts=True)
            counts = {"pixels": len(first.label), "images": len(np.unique(first.image))}
            counts |= {"smallest_class": sizes.min(), "largest_class": sizes.max()}
            frames.append(frame.assign(seeds=len(parts[key]), **counts))
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
        raise UserError(f"table {TABLE}: expected as many seeds in every row, got {seeds}; extract those that lack")


def offered_table(track: ResolvedTrack) -> ResolvedTable:
    """Return the table of embeddings.

    Raises
    ------
    UserError
        If the track does not offer it.
    """
    table = track.tables.get(TABLE)
    if table is None or not table.available:
        reason = "it is not declared" if table is None else table.reason
        raise UserError(f"track {track.name}: table {TABLE} is not offered: {reason}")
    return table


def table_file(track: ResolvedTrack, suffix: str) -> Path:
    """One of the files of the printed table."""
    run = next(iter(track.runs.values()))
    return Path(run.runtime.results) / "tables" / f"{TABLE}.{suffix}"


def labels_of(table: ResolvedTable) -> dict[str, str]:
    """LaTeX label of every measured row by its key."""
    return {key: row.declaration.label for key, row in table.rows.items() if row.runs}


def describe(table: ResolvedTable, track: ResolvedTrack, numbers: pd.DataFrame) -> tuple[str, list[str]]:
    """Write the caption and the notes of the table, the same in every output; LaTeX text."""
    first = numbers.iloc[0]
    seeds = int(first["seeds"])
    data = f"Data: {quote(track.declaration.datasets[table.declaration.dataset].title)} (track {quote(track.name)})."
    notes = [
        NOTE,
        compared_with(numbers, labels_of(table)),
        f"{first['pixels']} pixels of {first['images']} test images, {first['smallest_class']} to "
        f"{first['largest_class']} of a class, the same for every row.",
        ONE_SEED if seeds == 1 else f"Measured: mean over n = {seeds} seeds; the intervals hold their spread too.",
        data if track.declaration.comparable else f"{data} {NOT_COMPARABLE}",
    ]
    return measured_caption(table, track), notes


def read_numbers(track: ResolvedTrack) -> pd.DataFrame:
    """Read the numbers of the printed table.

    Raises
    ------
    UserError
        If the table has not been made.
    """
    path = table_file(track, "csv")
    mend = "`python -m analysis.figures embedding` makes it"
    if not path.exists():
        raise UserError(f"{path}: no such file; {mend}")
    numbers = pd.read_csv(path)
    missing = [name for name in COLUMNS if name not in numbers.columns]
    if missing:
        raise UserError(f"{path}: no column {', '.join(missing)}; {mend}")
    return numbers


def write_embedding_table(track: ResolvedTrack) -> list[Path]:
    """Measure the stored features of every row and write ``embedding.tex``, ``.csv`` and ``.md``.

    Raises
    ------
    UserError
        If the track does not offer the table, or features are missing.
    """
    table = offered_table(track)
    rows = {key: row for key, row in table.rows.items() if row.runs}
    numbers = measure_rows(
        {
            key: [Features.read(features_file(track.runs[run])) for run in row.runs.values()]
            for key, row in rows.items()
        },
        {key: row.baseline for key, row in rows.items()},
    )
    labels = labels_of(table)
    caption, notes = describe(table, track, numbers)
    contents = {
        "tex": render_latex(numbers, labels, caption, notes),
        "csv": numbers.to_csv(index=False, lineterminator="\n"),
        "md": render_markdown(numbers, labels, caption, notes),
    }
    for suffix, text in contents.items():
        write_text(table_file(track, suffix), text)
    return [table_file(track, suffix) for suffix in contents]
