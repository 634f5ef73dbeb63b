"""Every distinct network, pipeline and optimiser of a track, built once; mistakes are named by their declaration."""

from collections.abc import Iterator, Mapping
from typing import Any

from pne.declaration.build import BaseConfigs
from pne.declaration.build_check.blame import Problem
from pne.declaration.build_check.parts import find_problem
from pne.declaration.canonical import canonical, digest
from pne.declaration.catalogue import Catalogue
from pne.declaration.resolved import ResolvedRow, ResolvedTable, ResolvedTrack
from pne.engine.preparation import prepare
from pne.engine.registration import register

SECTIONS = {"model": "models", "train_dataloader": "datasets", "val_dataloader": "datasets"}
TRAINED = "train_dataloader.dataset"


def find_mistakes(track: ResolvedTrack, catalogue: Catalogue) -> list[str]:
    """Build what the runs of a track consist of, each distinct config once, and say which declarations are wrong.

    Parameters
    ----------
    track : ResolvedTrack
    catalogue : Catalogue
        The declarations it comes from.

    Returns
    -------
    list of str
        One line per mistake: file, key, what is wrong and what is allowed.
    """
    found: dict[str, Problem | None] = {}
    mistakes = {}
    for table, row in _rows(track):
        run = next(iter(row.runs.values()))
        spec = track.runs[run]
        plain = track.config(run).to_dict()
        register(plain)
        kind = digest(canonical(_without_loss_options(plain)))
        if kind not in found:
            prepared = prepare(
                plain,
                seed=spec.seed,
                iterations=spec.iterations,
                precision=spec.precision,
                per_process=spec.batch_size,
                parts=1,
                workers=0,
            )
            found[kind] = find_problem(prepared)
        problem = found[kind]
        if problem is not None:
            place = _declared_at(problem.key, table, row, track, catalogue)
            mistakes[f"{place}: {problem.message}"] = None
    return list(mistakes)


def _rows(track: ResolvedTrack) -> Iterator[tuple[ResolvedTable, ResolvedRow]]:
    for table in track.tables.values():
        for row in table.rows.values():
            if row.runs:
                yield table, row


def _without_loss_options(config: dict[str, Any]) -> dict[str, Any]:
    """Leave out options and weight of the contrastive loss, which resolving has checked: they change no part's form."""
    model = dict(config["model"])
    heads = model["decode_head"]
    reduced = [_without_options(head) for head in (heads if isinstance(heads, list | tuple) else [heads])]
    return config | {"model": model | {"decode_head": reduced}}


def _without_options(head: Mapping[str, Any]) -> dict[str, Any]:
    if "contrast" not in head:
        return dict(head)
    branch = {key: value for key, value in head["contrast"].items() if key != "weight"}
    return {**head, "contrast": branch | {"loss": branch["loss"]["type"]}}


def _declared_at(key: str, table: ResolvedTable, row: ResolvedRow, track: ResolvedTrack, catalogue: Catalogue) -> str:
    """Name the declaration that a key of a run's config comes from, and the key as it is spelled there."""
    key = key.replace("test_dataloader", "val_dataloader", 1).replace(f"{TRAINED}.dataset", TRAINED, 1)
    here = f"{catalogue.table_path(table.key)}: rows.{row.key}"
    if any(_says(name, value, key) for name, value in (row.declaration.config or {}).items()):
        return f"{here}: config.{key}"
    if ".contrast" in key:
        return f"{here}: contrast{key.partition('.contrast')[2]}"
    section = key.split(".")[0]
    bases = BaseConfigs(catalogue.folder, "random")
    model = track.declaration.models[str(row.declaration.model or table.declaration.model)]
    dataset = str(row.declaration.dataset or table.declaration.dataset)
    schedule = str(row.declaration.schedule or table.declaration.schedule or dataset)
    files = {
        "models": model,
        "datasets": track.declaration.datasets[dataset].config,
        "schedules": track.declaration.schedules[schedule],
    }
    recipe = "models" if section in bases.read("models", model) else "schedules"
    kind = SECTIONS.get(section, recipe)
    return f"{bases.path(kind, files[kind])}: {key}"


def _says(name: str, value: Any, key: str) -> bool:
    """Whether a row's change reaches a key or lies below it."""
    if name == key or name.startswith(f"{key}."):
        return True
    if not key.startswith(f"{name}."):
        return False
    for part in key.removeprefix(f"{name}.").split("."):
        if isinstance(value, list | tuple):
            return True
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True
