"""From declarations to runs: every table of a track with the runs that its rows point at.

All declarations are checked before the first run exists; up to ten mistakes are reported at once, each with file, row
and key. Equal settings, in whichever tables, are one run. Free of torch: a workflow parses this on every job.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pne.build import BaseConfigs, RunConfig
from pne.catalogue import Catalogue, read_catalogue
from pne.contrasts import ResolvedContrast, resolve_contrast
from pne.declarations import Row, Table, Track
from pne.errors import UserError
from pne.naming import run_slug
from pne.reading import describe, raise_problems, suggest
from pne.resolved import ResolvedRow, ResolvedTable, ResolvedTrack
from pne.row_config import check_changes
from pne.settings import read_settings
from pne.spec import Run, Runtime, identify
from pne.stock import merged


def load_track(
    name: str,
    *,
    experiments: Path | str = Path("experiments"),
    results: Path | str = Path("results"),
    data_root: Path | str | None = None,
    weights_dir: Path | str | None = None,
    seeds: Iterable[int] | None = None,
    tables: Iterable[str] | None = None,
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
    resolver = _Resolver(
        catalogue,
        _track(catalogue, name, data_root=data_root, weights_dir=weights_dir, seeds=seeds),
        results=Path(results),
        runtime=runtime or {},
        iterations=_positive("iterations", iterations),
        limit=_positive("limit", limit),
    )
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


__all__ = ["ResolvedRow", "ResolvedTable", "ResolvedTrack", "Run", "load_track"]


class _Resolver:
    """Resolves one track; holds what its tables share."""

    def __init__(
        self,
        catalogue: Catalogue,
        track: Track,
        *,
        results: Path,
        runtime: Mapping[str, Any],
        iterations: int | None,
        limit: int | None,
    ) -> None:
        self.catalogue, self.track = catalogue, track
        self.iterations, self.limit = iterations, limit
        weights = track.initial_weights
        if weights == "weights_dir":
            weights = "imagenet" if track.weights_dir else "random"
        self.bases = BaseConfigs(catalogue.folder, weights)
        self.runtime = _runtime(track, results, runtime)
        self.problems: list[str] = []
        self.runs: dict[str, Run] = {}
        self.configs: dict[str, RunConfig] = {}

    def resolve(self) -> ResolvedTrack:
        tables = {key: self._table(key, table) for key, table in self.catalogue.tables.items()}
        raise_problems(self.problems)
        for table in tables.values():
            if table.available and table.declaration.layout == "settings":
                table.settings.update(read_settings(table.declaration, self.runs, self.configs))
        return ResolvedTrack(self.track.track, self.track, self.runs, tables, self.configs)

    def _table(self, key: str, table: Table) -> ResolvedTable:
        where = f"{self.catalogue.table_path(key)}: rows"
        reason = self._unavailable(key, table)
        rows = {}
        for row_key, row in table.rows.items():
            runs: dict[int, str] = {}
            if row.is_trained:
                try:
                    contrast = self._contrast(row)
                    if reason is None:
                        runs = self._runs(table, row, contrast)
                except UserError as error:
                    self.problems += [f"{where}.{row_key}: {line}" for line in str(error).splitlines()]
            rows[row_key] = ResolvedRow(row_key, row, runs, row.baseline)
        return ResolvedTable(key, table, rows, reason is None, reason)

    def _unavailable(self, key: str, table: Table) -> str | None:
        """Say what the track lacks for a table; words that no track knows are mistakes."""
        offered = self.track.tables
        if offered is not None and key not in offered:
            return f"track {self.track.track} does not list the table {key}"
        return next((f"track {self.track.track} has no {lack}" for lack in self._lacks(key, table)), None)

    def _lacks(self, key: str, table: Table) -> Iterable[str]:
        if table.layout == "settings":
            datasets = [name for name, column in table.columns.items() if column.kind == "setting"]
            yield from (f"data set {name}" for name in datasets if name not in self.track.datasets)
            return
        for row in table.rows.values():
            if not row.is_trained:
                continue
            dataset = row.dataset or table.dataset
            model, schedule = row.model or table.model, row.schedule or table.schedule
            for kind, value, known in (
                ("data set", dataset, self.track.datasets),
                ("model", model, self.track.models),
                ("schedule", schedule, self.track.schedules),
            ):
                if value is not None and value not in known:
                    yield f"{kind} {value}"

    def _contrast(self, row: Row) -> ResolvedContrast | None:
        if row.contrast is None:
            return None
        return resolve_contrast(row.contrast, self.catalogue.contrasts, self.track.contrast)

    def _runs(self, table: Table, row: Row, contrast: ResolvedContrast | None) -> dict[int, str]:
        dataset, model = row.dataset or table.dataset, row.model or table.model
        for kind, value, known in (("dataset", dataset, self.track.datasets), ("model", model, self.track.models)):
            if value is None:
                raise UserError(f"{kind}: missing; name it here or for the whole table; {suggest('', known)}")
        schedule = row.schedule or table.schedule or dataset
        evaluations = {table.evaluation, *(c.evaluation for c in table.columns.values() if c.evaluation)}
        base = self.bases.compose(
            self.track.datasets[dataset].config, self.track.models[model], self.track.schedules[schedule]
        )
        check_changes(base, row.config or {})
        runs = {}
        for seed in self.track.seeds:
            config = RunConfig(
                base,
                changes=row.config,
                contrast=contrast,
                seed=seed,
                precision=self.track.precision,
                iterations=self.iterations,
                limit=self.limit,
            )
            if contrast is not None and self.iterations is None and contrast.start >= config.iterations:
                raise UserError(
                    f"contrast.start: expected less than {config.iterations}, the run's iterations, "
                    f"got {contrast.start}"
                )
            runs[seed] = self._run(config, dataset, model, schedule, evaluations)
        return runs

    def _run(
        self,
        config: RunConfig,
        dataset: str,
        model: str,
        schedule: str,
        evaluations: set[str],
    ) -> str:
        # Two names of one file are one model; the first of the track names the run.
        dataset = _first_name(dataset, {key: value.config for key, value in self.track.datasets.items()})
        model = _first_name(model, self.track.models)
        config_sha256, digits = identify(config.plain, config.seed, config.precision)
        run = f"{run_slug(dataset, model, config.contrast, config.seed)}-{digits}"
        known = self.runs.get(run)
        wanted = {"single_scale", *evaluations, *(known.evaluations if known else ())}
        data = self.track.datasets[dataset]
        self.configs.setdefault(run, config)
        self.runs[run] = Run(
            run=run,
            track=self.track.track,
            dataset=dataset,
            dataset_title=data.title,
            layout=data.layout,
            folder=data.folder,
            model=model,
            schedule=schedule,
            contrast=config.contrast.description() if config.contrast else None,
            seed=config.seed,
            precision=config.precision,
            iterations=config.iterations,
            batch_size=config.plain["train_dataloader"]["batch_size"],
            config_sha256=config_sha256,
            evaluations=sorted(wanted, reverse=True),
            runtime=self.runtime,
        )
        return run


def _first_name(name: str, files: Mapping[str, str]) -> str:
    return next(key for key, file in files.items() if file == files[name])


def _runtime(track: Track, results: Path, changes: Mapping[str, Any]) -> Runtime:
    shared = set(Runtime.model_fields) & set(Track.model_fields)
    values = {key: getattr(track, key) for key in shared} | {"results": str(results / track.track)}
    try:
        return Runtime.model_validate(merged(values, dict(changes)))
    except ValidationError as error:
        raise_problems([f"runtime: {problem}" for problem in describe(error, Runtime)])
        raise
