"""From declarations to runs: every table of a track with the runs that its rows point at.

All declarations are checked before the first run exists; up to ten mistakes are reported at once, each with file, row
and key. Equal settings, in whichever tables, are one run. Free of torch: a workflow parses this on every job.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pne.declaration.catalogue import Catalogue, read_catalogue
from pne.declaration.reading import describe, raise_problems, suggest
from pne.declaration.resolved import ResolvedRow, ResolvedTable, ResolvedTrack
from pne.declaration.resolver import Resolver
from pne.declaration.schema import Track
from pne.errors import UserError
from pne.spec import Run

__all__ = ["ResolvedRow", "ResolvedTable", "ResolvedTrack", "Run", "load_track"]


def load_track(
    name: str,
    *,
    experiments: Path | str = Path("experiments"),
    results: Path | str = Path("results"),
    data_root: Path | str | None = None,
    weights_dir: Path | str | None = None,
    seeds: Iterable[int] | None = None,
    tables: Iterable[str] | None = None,
    runs: Iterable[str] | None = None,
    runtime: Mapping[str, Any] | None = None,
    iterations: int | None = None,
    limit: int | None = None,
    catalogue: Catalogue | None = None,
) -> ResolvedTrack:
    """Resolve a track: check all declarations, then name every run.

    Parameters
    ----------
    name : str
        File ``<experiments>/tracks/<name>.yaml``.
    experiments, results : Path or str
        Folders of declarations and of results.
    data_root, weights_dir : Path or str, optional
        Instead of the track's.
    seeds : iterable of int, optional
        Instead of the track's.
    tables : iterable of str, optional
        Keep these tables and their runs alone. The runs do not depend on it.
    runs : iterable of str, optional
        Resolve these runs alone, which is faster; the result has no tables. Unknown ones are missing from it.
    runtime : Mapping, optional
        Changes to `pne.spec.Runtime`, such as ``workers`` or ``device``. No run's identity depends on it.
    iterations : int, optional
        For rehearsals: shorten every run to so many iterations, schedules and starts in proportion. Makes other runs.
    limit : int, optional
        For rehearsals: use the first ``limit`` images of each split alone. Makes other runs.
    catalogue : Catalogue, optional
        The declarations of ``experiments``, where they have been read already.

    Returns
    -------
    ResolvedTrack

    Raises
    ------
    UserError
        If any declaration is wrong, with one line per mistake.
    """
    catalogue = catalogue or read_catalogue(Path(experiments))
    resolver = Resolver(
        catalogue,
        _track(catalogue, name, data_root=data_root, weights_dir=weights_dir, seeds=seeds),
        results=Path(results),
        runtime=runtime or {},
        iterations=_positive("iterations", iterations),
        limit=_positive("limit", limit),
    )
    if runs is not None:
        return resolver.resolve_runs(list(runs))
    resolved = resolver.resolve()
    return resolved if tables is None else _only(resolved, list(tables))


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UserError(f"{name}: expected a whole number >= 1, got {value!r}")
    return value


def _track(catalogue: Catalogue, name: str, **overrides: Any) -> Track:
    if name not in catalogue.tracks:
        raise UserError(f"{catalogue.folder / 'tracks'}: no track {name!r}; {suggest(name, catalogue.tracks)}")
    track = catalogue.tracks[name]
    given = {key: value for key, value in overrides.items() if value is not None}
    for key in ("data_root", "weights_dir"):
        if key in given:
            given[key] = str(given[key])
    if "seeds" in given:
        given["seeds"] = list(given["seeds"])
    try:
        return Track.model_validate(track.model_dump() | given)
    except ValidationError as error:
        raise_problems([f"track {name}: {problem}" for problem in describe(error, Track)])
        raise


def _only(track: ResolvedTrack, names: list[str]) -> ResolvedTrack:
    for name in names:
        if name not in track.tables:
            raise UserError(f"track {track.name}: no table {name!r}; {suggest(name, track.tables)}")
    tables = {key: table for key, table in track.tables.items() if key in names}
    used = {run for table in tables.values() for row in table.rows.values() for run in row.runs.values()}
    runs = {key: run for key, run in track.runs.items() if key in used}
    return ResolvedTrack(track.name, track.declaration, runs, tables, track._configs)
