"""Rows of tables become runs: availability on a track, contrast, config, identity. Equal settings are one run."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pne.declaration.build import BaseConfigs, RunConfig
from pne.declaration.catalogue import Catalogue, missing_class
from pne.declaration.contrasts import ResolvedContrast, resolve_contrast
from pne.declaration.naming import run_slug
from pne.declaration.reading import describe, raise_problems, suggest
from pne.declaration.resolved import ResolvedRow, ResolvedTable, ResolvedTrack
from pne.declaration.row_config import check_changes
from pne.declaration.schema import Row, Table, Track
from pne.declaration.settings import read_settings
from pne.declaration.stock import merged
from pne.errors import UserError
from pne.spec import Run, Runtime, identify


class Resolver:
    """Resolves one track; holds what its tables share.

    Parameters
    ----------
    catalogue : Catalogue
    track : Track
        Its declaration, with what was changed from outside.
    results : Path
        Folder of all results.
    runtime : Mapping
        Changes to `pne.spec.Runtime`.
    iterations, limit : int or None
        As `pne.declaration.build.RunConfig` takes them.
    """

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
        self.wanted: list[str] | None = None
        self.problems: list[str] = []
        self.runs: dict[str, Run] = {}
        self.configs: dict[str, RunConfig] = {}

    def resolve(self) -> ResolvedTrack:
        """Resolve every table.

        Raises
        ------
        UserError
            With one line per mistake.
        """
        tables = {key: self._table(key, table) for key, table in self.catalogue.tables.items()}
        raise_problems(self.problems)
        for table in tables.values():
            if table.available and table.declaration.layout == "settings":
                table.settings.update(read_settings(table.declaration, self.runs, self.configs))
        return ResolvedTrack(self.track.track, self.track, self.runs, tables, self.configs)

    def resolve_runs(self, wanted: list[str]) -> ResolvedTrack:
        """Resolve some runs; rows of other data sets and models, which their names tell, are left out."""
        self.wanted = wanted
        for key, table in self.catalogue.tables.items():
            self._table(key, table)
        raise_problems(self.problems)
        return ResolvedTrack(
            self.track.track, self.track, {run: self.runs[run] for run in wanted if run in self.runs}, {}, self.configs
        )

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
        missing = missing_class(table, self.track)
        if missing is not None:
            yield missing

    def _contrast(self, row: Row) -> ResolvedContrast | None:
        if row.contrast is None:
            return None
        return resolve_contrast(row.contrast, self.catalogue.contrasts, self.track.contrast)

    def _runs(self, table: Table, row: Row, contrast: ResolvedContrast | None) -> dict[int, str]:
        dataset, model = row.dataset or table.dataset, row.model or table.model
        for kind, value, known in (("dataset", dataset, self.track.datasets), ("model", model, self.track.models)):
            if value is None:
                raise UserError(f"{kind}: missing; name it here or for the whole table; {suggest('', known)}")
        if not self._is_wanted(dataset, model):
            return {}
        schedule = row.schedule or table.schedule or dataset
        evaluations = {table.evaluation, *(c.evaluation for c in table.columns.values() if c.evaluation)}
        try:
            base = self.bases.compose(
                self.track.datasets[dataset].config, self.track.models[model], self.track.schedules[schedule]
            )
        except UserError as error:
            self.problems += str(error).splitlines()  # of a file, whichever rows use it
            return {}
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
            runs[seed] = self._run(config, base, dataset, model, schedule, evaluations)
        return runs

    def _is_wanted(self, dataset: str, model: str) -> bool:
        start = "-".join([*self._names(dataset, model), ""])
        return self.wanted is None or any(run.startswith(start) for run in self.wanted)

    def _names(self, dataset: str, model: str) -> tuple[str, str]:
        """Two names of one file are one model; the first of the track names the run."""
        datasets = {key: value.config for key, value in self.track.datasets.items()}
        return _first_name(dataset, datasets), _first_name(model, self.track.models)

    def _run(
        self,
        config: RunConfig,
        base: Mapping[str, Any],
        dataset: str,
        model: str,
        schedule: str,
        evaluations: set[str],
    ) -> str:
        dataset, model = self._names(dataset, model)
        config_sha256, digits = identify(config.plain, config.seed, config.precision)
        schedules = self.track.schedules
        slug = run_slug(
            dataset,
            model,
            config.contrast,
            config.seed,
            schedule=None if schedules[schedule] == schedules[dataset] else schedule,
            base=base,
            changed=config.changed,
        )
        run = f"{slug}-{digits}"
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
