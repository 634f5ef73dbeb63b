"""All declarations of a folder ``experiments``, read and checked file by file and against each other.

The classes of data sets are known without torch: of ours from their layout, of mmsegmentation's from its source.
"""

import ast
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pne.datasets.layouts import LAYOUTS
from pne.errors import UserError
from pne.spec.contrast import check_named, resolve_contrast
from pne.spec.reading import Model, raise_problems, read_declaration, suggest
from pne.spec.schema import Contrast, Table, Track
from pne.spec.stock import package_folder


@cache
def class_names(layout: str) -> tuple[str, ...]:
    """Return the classes of a layout of `pne.datasets`, in the order of the label values.

    They are the keys of ``class_iou`` in results, and what ``iou:<class>`` may name.

    Raises
    ------
    UserError
        If mmsegmentation has no such data set class, or its class names do not stand in its source as plain text.
    """
    known = LAYOUTS[layout]
    return known.classes or _stock_classes(known.dataset_type)


def _stock_classes(dataset_type: str) -> tuple[str, ...]:
    folder = package_folder("mmseg") / "datasets"
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if f"class {dataset_type}(" in text else ():
            if isinstance(node, ast.ClassDef) and node.name == dataset_type:
                for word in ast.walk(node):  # METAINFO = dict(classes=(...), palette=[...])
                    if isinstance(word, ast.keyword) and word.arg == "classes":
                        return tuple(ast.literal_eval(word.value))
    raise UserError(
        f"{folder}: no class {dataset_type} with a METAINFO of plain class names; install mmsegmentation 1.x"
    )


@dataclass(frozen=True)
class Catalogue:
    """What a folder of declarations holds.

    Attributes
    ----------
    folder : Path
    contrasts, tracks : dict
        By name, alphabetical.
    tables : dict of str to Table
        By name; the paper's tables in printed order, then the others alphabetically, studies last.
    """

    folder: Path
    contrasts: dict[str, Contrast]
    tables: dict[str, Table]
    tracks: dict[str, Track]

    def table_path(self, name: str) -> Path:
        """File of a table, for messages."""
        return self.folder / "tables" / f"{name}.yaml"

    def track_path(self, name: str) -> Path:
        """File of a track, for messages."""
        return self.folder / "tracks" / f"{name}.yaml"


def read_catalogue(folder: Path) -> Catalogue:
    """Read every contrast, table and track of a folder.

    Raises
    ------
    UserError
        If any of them is wrong, with one line per mistake, at most ten.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of declarations; run from the repository's root or name it")
    problems: list[str] = []
    catalogue = Catalogue(
        folder,
        _read_all(folder / "contrast", Contrast, "contrast", problems),
        _read_all(folder / "tables", Table, "table", problems),
        _read_all(folder / "tracks", Track, "track", problems),
    )
    raise_problems(problems)
    _check_contrasts(catalogue, problems)
    _check_tracks(catalogue, problems)
    _check_names(catalogue, problems)
    raise_problems(problems)
    _check_classes(catalogue, problems)
    raise_problems(problems)
    tables = catalogue.tables
    printed = sorted(tables, key=lambda name: (tables[name].study, tables[name].number or math.inf, name))
    return Catalogue(folder, catalogue.contrasts, {name: tables[name] for name in printed}, catalogue.tracks)


def _read_all(folder: Path, model: type[Model], name_key: str, problems: list[str]) -> dict[str, Model]:
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        try:
            found[path.stem] = read_declaration(path, model, name_key)
        except UserError as error:
            problems += str(error).splitlines()
    for path in sorted(folder.glob("*.yml")):
        problems.append(f"{path}: declarations end in .yaml; rename the file")
    return found


def _check_contrasts(catalogue: Catalogue, problems: list[str]) -> None:
    for name, contrast in catalogue.contrasts.items():
        try:
            check_named(contrast)
        except UserError as error:
            problems.append(f"{catalogue.folder / 'contrast' / name}.yaml: {error}")


def _check_tracks(catalogue: Catalogue, problems: list[str]) -> None:
    for name, track in catalogue.tracks.items():
        path = catalogue.track_path(name)
        for table in track.tables or ():
            if table not in catalogue.tables:
                problems.append(f"{path}: tables: no table {table!r}; {suggest(table, catalogue.tables)}")
        for contrast, changes in track.contrast.items():
            if contrast not in catalogue.contrasts:
                near = suggest(contrast, catalogue.contrasts)
                problems.append(f"{path}: contrast.{contrast}: no contrast {contrast!r}; {near}")
                continue
            try:
                resolve_contrast({"use": contrast}, catalogue.contrasts, {contrast: changes})
            except UserError as error:
                lines = str(error).splitlines()
                problems += [f"{path}: contrast.{contrast}: {line.removeprefix('contrast.')}" for line in lines]
        for key, data in track.datasets.items():
            if data.layout not in LAYOUTS:
                near = suggest(data.layout, LAYOUTS)
                problems.append(f"{path}: datasets.{key}.layout: no layout {data.layout!r} in pne.datasets; {near}")
        configs = {key: data.config for key, data in track.datasets.items()}
        for kind, files in {"datasets": configs, "models": track.models, "schedules": track.schedules}.items():
            have = sorted(config.stem for config in (catalogue.folder / kind).glob("*.py"))
            problems += [
                f"{path}: {kind}.{key}: no file {kind}/{file}.py; {suggest(file, have)}"
                for key, file in files.items()
                if file not in have
            ]


def _check_names(catalogue: Catalogue, problems: list[str]) -> None:
    """Find data sets, models and schedules in tables that no track knows."""
    tracks = catalogue.tracks.values()
    known = {
        kind: list(dict.fromkeys(name for track in tracks for name in getattr(track, f"{kind}s")))
        for kind in ("dataset", "model", "schedule")
    }
    for table_name, table in catalogue.tables.items():
        path = catalogue.table_path(table_name)
        for kind, names in known.items():
            _check_word(f"{path}: {kind}", getattr(table, kind), kind, names, problems)
            for key, row in table.rows.items():
                where = f"{path}: rows.{key}.{kind}"
                _check_word(where, getattr(row, kind), kind, names, problems)
                if row.is_trained and kind != "schedule" and not (getattr(row, kind) or getattr(table, kind)):
                    problems.append(f"{where}: missing; name it here or for the whole table; {suggest('', names)}")
        if table.layout == "settings":
            for name, column in table.columns.items():
                if column.kind == "setting":
                    _check_word(f"{path}: columns.{name}", name, "dataset", known["dataset"], problems)


def _check_word(where: str, word: str | None, kind: str, known: list[str], problems: list[str]) -> None:
    if word is not None and word not in known:
        problems.append(f"{where}: no track has a {kind} {word!r}; {suggest(word, known)}")


def missing_class(table: Table, track: Track) -> str | None:
    """Say which class of the table's ``iou:<class>`` columns a data set of a track lacks, None if it has all."""
    for name, column in table.columns.items():
        if column.class_name is None:
            continue
        for dataset in _datasets_of(table):
            data = track.datasets.get(dataset)
            if data is not None and column.class_name not in class_names(data.layout):
                near = suggest(column.class_name, class_names(data.layout))
                return f"class {column.class_name!r} in {dataset} ({data.title}), asked for by columns.{name}; {near}"
    return None


def _check_classes(catalogue: Catalogue, problems: list[str]) -> None:
    """Find classes in ``iou:<class>`` columns that a data set has on no track."""
    for table_name, table in catalogue.tables.items():
        for name, column in table.columns.items():
            for dataset in _datasets_of(table) if column.class_name is not None else ():
                layouts = {t.datasets[dataset].layout for t in catalogue.tracks.values() if dataset in t.datasets}
                known = list(dict.fromkeys(word for layout in sorted(layouts) for word in class_names(layout)))
                if column.class_name not in known:
                    problems.append(
                        f"{catalogue.table_path(table_name)}: columns.{name}.metric: on no track has the data set "
                        f"{dataset} a class {column.class_name!r}; {suggest(column.class_name, known)}"
                    )


def _datasets_of(table: Table) -> list[str]:
    names = (table.words_of(row)[0] for row in table.rows.values() if row.is_trained)
    return list(dict.fromkeys(name for name in names if name is not None))
