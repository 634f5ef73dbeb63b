"""The figures: which there are (``experiments/figures.yaml``), and the runs that each needs on a track.

``python -m analysis.figures`` is the command. Loading, computing and drawing are apart: a drawing function gets axes
and a table (or arrays) and reads no file.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from pne.errors import UserError
from pne.spec import ResolvedRow, ResolvedTable, ResolvedTrack, Run
from pne.spec.reading import check_model, raise_problems, read_yaml, suggest
from pne.spec.schema import Strict

FILE = "figures.yaml"
PICTURES = ("tsne_sampling", "tsne_loss", "pairs", "qualitative")  # of single runs, made with their weights
Kind = Literal["tsne_sampling", "tsne_loss", "pairs", "qualitative", "sweeps", "training_curves", "class_iou"]
ROWS_OF = {"tsne_sampling": 1, "tsne_loss": 2, "pairs": 1, "qualitative": 2, "class_iou": 2}  # per table; others: any
SEVERAL_TABLES = ("class_iou",)  # kinds that show more than one table
NOT_COMPARABLE = "It is not the paper's data, so that nothing here may be compared with published values."
SELECTION, MAP = "selection.json", "map.npz"  # in the folder of a figure's data
NAME = re.compile(r"[a-z0-9_]+")
NUMBER = re.compile(r"-?\d+(\.\d+)?")


class FigureDeclaration(Strict):
    """One figure."""

    kind: Kind
    title: str
    paper: list[str] = Field(default_factory=list, description="LaTeX labels in the paper's source.")
    rows: dict[str, list[str] | Literal["all"]] = Field(
        min_length=1, description="Rows by table; baseline first where two are compared."
    )


class TableRows(NamedTuple):
    """The rows that a figure shows of one table."""

    table: ResolvedTable
    rows: tuple[ResolvedRow, ...]

    @property
    def runs(self) -> list[str]:
        """Ids of all seeds of all rows."""
        return [run for row in self.rows for run in row.runs.values()]


@dataclass(frozen=True)
class ResolvedFigure:
    """A figure on a track.

    Attributes
    ----------
    name : str
    declaration : FigureDeclaration
    parts : tuple of TableRows
        Of the tables that the track offers.
    reason : str or None
        Why the track does not offer the figure.
    """

    name: str
    declaration: FigureDeclaration
    parts: tuple[TableRows, ...]
    reason: str | None = None

    @property
    def available(self) -> bool:
        """Whether the track offers the figure."""
        return self.reason is None

    @property
    def rows(self) -> tuple[ResolvedRow, ...]:
        """Rows of the first table."""
        return self.parts[0].rows

    @property
    def first_seed_runs(self) -> list[str]:
        """Ids of the first seed of the first table's rows."""
        return [next(iter(row.runs.values())) for row in self.rows]

    @property
    def runs(self) -> list[str]:
        """Ids of all runs that the figure draws, each once: one seed for pictures of single runs, else all."""
        single = self.declaration.kind in PICTURES
        found = self.first_seed_runs if single else [run for part in self.parts for run in part.runs]
        return list(dict.fromkeys(found))


def read_figures(experiments: Path) -> dict[str, FigureDeclaration]:
    """Read the declarations.

    Raises
    ------
    UserError
        Naming file, figure and key of every mistake.
    """
    path = experiments / FILE
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected figures by name, got {data!r:.60}")
    figures, problems = {}, []
    for name, content in data.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            problems.append(f"{path}: {name!r}: expected a name of lower-case letters, digits and underscores")
            continue
        try:
            figures[name] = check_model(FigureDeclaration, content, f"{path}: {name}.")
        except UserError as error:
            problems += str(error).splitlines()
    raise_problems(problems)
    return figures


def resolve_figures(track: ResolvedTrack, experiments: Path) -> dict[str, ResolvedFigure]:
    """Find the rows and runs of every figure on a track.

    Raises
    ------
    UserError
        If a figure names a table or a row that is not declared, a number of rows or tables that it cannot show, or,
        for a sweep, a table that is none.
    """
    problems: list[str] = []
    figures = {}
    for name, declaration in read_figures(experiments).items():
        figures[name], found = _resolve(name, declaration, track)
        problems += [f"{experiments / FILE}: {name}.rows{problem}" for problem in found]
    raise_problems(problems)
    return figures


def _resolve(name: str, declaration: FigureDeclaration, track: ResolvedTrack) -> tuple[ResolvedFigure, list[str]]:
    """Return the figure, and what is wrong with its rows."""
    parts, reasons, problems = [], [], []
    kind, number = declaration.kind, len(declaration.rows)
    if number > 1 and kind not in SEVERAL_TABLES:
        several = ", ".join(SEVERAL_TABLES)
        problems.append(f": {kind} shows one table, got {number} ({', '.join(declaration.rows)}); several: {several}")
    for key, wanted in declaration.rows.items():
        table = track.tables.get(key)
        if table is None:
            problems.append(f": no table {key!r}; {suggest(key, track.tables)}")
            continue
        if kind == "sweeps":
            problems += [f": kind sweeps {problem}" for problem in _no_sweep(table, track)]
        if not table.available:
            reasons.append(f"table {key}: {table.reason}")
            continue
        if kind in PICTURES and track.archived:
            reasons.append(f"{kind} needs weights, and the archive has none")
            continue
        keys = [row.key for row in table.rows.values() if row.runs] if wanted == "all" else wanted
        for row in keys:
            if row not in table.rows:
                problems.append(f".{key}: no row {row!r}; {suggest(row, table.rows)}")
            elif not table.rows[row].runs:
                problems.append(f".{key}: row {row!r} has no runs; name one that is trained")
        if len(keys) != ROWS_OF.get(kind, len(keys)):
            problems.append(f".{key}: {kind} shows {ROWS_OF[kind]} rows, got {len(keys)}")
        parts.append(TableRows(table, tuple(table.rows[row] for row in keys if row in table.rows)))
    reason = None if parts else "; ".join(reasons)
    return ResolvedFigure(name, declaration, tuple(parts), reason), problems


def _no_sweep(table: ResolvedTable, track: ResolvedTrack) -> list[str]:
    """Say why a table holds no values of an option, if it does not."""
    if table.declaration.layout != "sweep":
        sweeps = (key for key, other in track.tables.items() if other.declaration.layout == "sweep")
        return [f"shows tables of layout sweep, {table.key!r} is none; {suggest(table.key, sweeps)}"]
    labels = {key: row.declaration.label for key, row in table.rows.items()}
    wrong = [key for key, label in labels.items() if not NUMBER.fullmatch(label)]
    return [f"needs numbers as labels, row {key!r} of {table.key} has {labels[key]!r}" for key in wrong]


def choose(figures: dict[str, ResolvedFigure], name: str, track: str) -> ResolvedFigure:
    """Return one figure that the track offers.

    Raises
    ------
    UserError
        If there is no such figure, or the track does not offer it.
    """
    if name not in figures:
        raise UserError(f"no figure {name!r}; {suggest(name, figures)}")
    if not figures[name].available:
        raise UserError(f"track {track}: figure {name} is not offered: {figures[name].reason}")
    return figures[name]


def title_of(table: ResolvedTable) -> str:
    """Name a table as the report's table of contents does: ``Table 2: city-val``, or ``Own: embedding``."""
    paper = table.declaration.paper
    return f"Own: {table.key}" if paper is None else f"Table {paper.number}: {paper.label}"


def data_folder(figure: ResolvedFigure, track: ResolvedTrack) -> Path:
    """Folder of what is computed for one figure and kept apart from the drawing."""
    return Path(track.runs[figure.first_seed_runs[0]].runtime.results) / "figures" / "data" / figure.name


def features_file(run: Run) -> Path:
    """File of a run's sampled features.

    Raises
    ------
    UserError
        If the run is read from the archive.
    """
    if run.archived:
        raise UserError(f"features of {run.run}: the archive holds none; leave out source=archive, or --source archive")
    return Path(run.runtime.results) / "features" / f"{run.run}.npz"
