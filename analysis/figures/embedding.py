"""``table_embedding``: measure the stored features of every row; print the numbers."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.embedding import Sample, average, image_weights, measure, summarise
from analysis.figures.captions import NOT_COMPARABLE
from analysis.figures.declaration import features_file
from analysis.figures.embedding_table import SPACES, render_latex, render_markdown
from pne.declaration.resolved import ResolvedTable, ResolvedTrack
from pne.errors import UserError
from pne.extraction.archives import Features
from pne.files import write_text

TABLE = "embedding"
RESAMPLES = 1000
COLUMNS = ("row", "space", "scope", "metric", "value", "low", "high", "delta", "delta_low", "delta_high")
# Classes that the paper names, and what data sets call them.
NAMED_CLASSES = {"vegetation": ("vegetation", "tree"), "building": ("building",), "pole": ("pole",)}


def focus_classes(classes: Iterable[str]) -> list[str]:
    """Return a data set's own names of the classes that the paper names.

    >>> focus_classes(["Sky", "Building", "Pole", "Tree"])
    ['Tree', 'Building', 'Pole']
    """
    known = {name.lower(): name for name in classes}
    return [known[name] for names in NAMED_CLASSES.values() for name in names if name in known]


def measure_rows(features: dict[str, Sequence[Features]], resamples: int = RESAMPLES) -> pd.DataFrame:
    """Measure every row in every space.

    Parameters
    ----------
    features : dict
        By key of the row, the sampled features of each seed; the first row is the baseline.
    resamples : int

    Returns
    -------
    DataFrame
        Columns row, space, scope, metric, value, low, high, delta, delta_low, delta_high, seeds, pixels, images.

    Raises
    ------
    UserError
        If the runs sampled different pixels, so that they cannot be paired.
    """
    baselines: dict[str, dict] = {}
    frames = []
    for space in SPACES:
        for key, seeds in features.items():
            parts = [seed.select(seed.by_label) for seed in seeds]
            if any(getattr(part, space) is None for part in parts):
                continue
            measured = [_measure(part, space, resamples) for part in parts]
            _check_same_pixels(parts, next(iter(features.values())))
            result = average(measured)
            frame = summarise(result, baselines.get(space))
            baselines.setdefault(space, result)
            frame.insert(0, "row", key)
            frame.insert(1, "space", space)
            frames.append(
                frame.assign(seeds=len(parts), pixels=len(parts[0].label), images=len(np.unique(parts[0].image)))
            )
    return pd.concat(frames, ignore_index=True)


def _measure(part: Features, space: str, resamples: int) -> dict:
    sample = Sample(getattr(part, space), part.label, part.image)
    names = part.classes.tolist()
    return measure(sample, names, focus_classes(names), image_weights(part.image, resamples, seed=0))


def _check_same_pixels(parts: Sequence[Features], first: Sequence[Features]) -> None:
    reference = first[0].select(first[0].by_label)
    for part in parts:
        same = len(part.label) == len(reference.label) and all(
            np.array_equal(getattr(part, name), getattr(reference, name)) for name in ("image", "position", "label")
        )
        if not same:
            runs = f"{part.about['run']} and {reference.about['run']}"
            raise UserError(f"{runs}: sampled different pixels; extract both anew: python -m pne.extract SPEC ...")


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
    labels = {row.key: row.declaration.label for row in table.rows.values() if row.runs}
    numbers = measure_rows(
        {
            key: [Features.read(features_file(track.runs[run])) for run in table.rows[key].runs.values()]
            for key in labels
        }
    )
    title = track.declaration.datasets[table.declaration.dataset].title
    first = numbers.iloc[0]
    notes = [
        f"{first['pixels']} pixels of {first['images']} test images, the same for every row; "
        f"{first['seeds']} {'seed' if first['seeds'] == 1 else 'seeds'} a row.",
        f"Data: {title} (track {track.name}).{'' if track.declaration.comparable else ' ' + NOT_COMPARABLE}",
    ]
    caption = table.declaration.caption or table.declaration.question
    contents = {
        "tex": render_latex(numbers, labels, caption, notes),
        "csv": numbers.to_csv(index=False, lineterminator="\n"),
        "md": render_markdown(numbers, labels, caption, notes),
    }
    for suffix, text in contents.items():
        write_text(table_file(track, suffix), text)
    return [table_file(track, suffix) for suffix in contents]
