"""From declarations to runs: every table of a track with the runs that its rows point at.

All declarations are checked before the first run exists; up to ten mistakes are reported at once, each with file, row
and key. Equal settings, in whichever tables, are one run. Free of torch: a workflow parses this on every job.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mmengine.config import Config

from pne.errors import UserError
from pne.spec.catalogue import Catalogue, missing_class, read_catalogue
from pne.spec.checks import check_changes, is_count, value_at
from pne.spec.compose import BaseConfigs, RunConfig, place, sized
from pne.spec.contrast import ResolvedContrast, resolve_contrast
from pne.spec.identity import run_slug
from pne.spec.reading import check_model, raise_problems, suggest
from pne.spec.run import Run, Runtime, identify
from pne.spec.schema import Machine, Row, Table, Track
from pne.spec.stock import parts

SETTINGS = {
    "iterations": "train_cfg.max_iters",
    "learning_rate": "optim_wrapper.optimizer.lr",
    "batch_size": "train_dataloader.batch_size",
    "weight_decay": "optim_wrapper.optimizer.weight_decay",
}
"""Where the settings that a table may read stand in a run's config."""


@dataclass(frozen=True)
class ResolvedRow:
    """A row and its runs, one per seed; none for rows that are not trained."""

    key: str
    declaration: Row
    runs: dict[int, str]
    baseline: str | None


@dataclass(frozen=True)
class ResolvedTable:
    """A table of a track.

    Attributes
    ----------
    key : str
    declaration : Table
    rows : dict of str to ResolvedRow
        In printed order.
    available : bool
        Whether the track offers it.
    reason : str or None
        Why not.
    settings : dict
        Of settings tables: by row and column, the values of the resolved configs, each with the models that train with
        it; the value of most models first.
    """

    key: str
    declaration: Table
    rows: dict[str, ResolvedRow]
    available: bool = True
    reason: str | None = None
    settings: dict[str, dict[str, list[tuple[float, list[str]]]]] = field(default_factory=dict)


@dataclass(frozen=True)
class ResolvedTrack:
    """A track with all its runs and tables.

    Attributes
    ----------
    name : str
    declaration : Track
    runs : dict of str to Run
        By identifier, in the order of tables and rows, each once.
    tables : dict of str to ResolvedTable
        The paper's in printed order, then others by name.
    """

    name: str
    declaration: Track
    runs: dict[str, Run]
    tables: dict[str, ResolvedTable]
    _configs: Mapping[str, RunConfig] = field(repr=False, default_factory=dict)

    @property
    def archived(self) -> bool:
        """Whether its runs are read from the archive alone."""
        return any(run.archived for run in self.runs.values())

    def config(self, run: str) -> Config:
        """Return the whole mmengine config of a run, paths and all.

        Raises
        ------
        UserError
            If the track has no such run.
        """
        spec = self._run(run)
        weights_dir = Path(spec.runtime.weights_dir) if spec.runtime.weights_dir else None
        plain = place(
            self._configs[run].plain,
            data=spec.data_directory,
            workers=spec.runtime.workers,
            cache_data=spec.runtime.cache_data,
            weights_dir=weights_dir,
        )
        return Config(plain)

    def initial_weights(self, run: str) -> str | None:
        """Return the URL of the file that a run's backbone starts from, None where it starts at random."""
        self._run(run)
        source = self._configs[run].plain["model"]["backbone"].get("init_cfg")
        return source.get("checkpoint") if isinstance(source, dict) else None

    def _run(self, run: str) -> Run:
        if run not in self.runs:
            near = difflib.get_close_matches(run, self.runs, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UserError(
                f"track {self.name}: no run {run!r}; {hint}python -m analysis.runs --track {self.name} lists all"
            )
        return self.runs[run]


def load_track(
    name: str,
    *,
    experiments: Path | str = Path("experiments"),
    results: Path | str = Path("results"),
    data_root: Path | str | None = None,
    weights_dir: Path | str | None = None,
    seeds: Iterable[int] | None = None,
    tables: Iterable[str] | None = None,
    studies: bool = False,
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
    studies : bool
        Where no tables are named, keep the studies beside the others.
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
    for key, value in {"iterations": iterations, "limit": limit}.items():
        if value is not None and not is_count(value):
            raise UserError(f"{key}: expected a whole number >= 1, got {value!r}")
    catalogue = catalogue or read_catalogue(Path(experiments))
    if name not in catalogue.tracks:
        raise UserError(f"{catalogue.folder / 'tracks'}: no track {name!r}; {suggest(name, catalogue.tracks)}")
    given = {
        "data_root": data_root and str(Path(data_root)),
        "weights_dir": weights_dir and str(Path(weights_dir)),
        "seeds": None if seeds is None else list(seeds),
    }
    given = {key: value for key, value in given.items() if value is not None}
    track = check_model(Track, catalogue.tracks[name].model_dump() | given, f"track {name}: ")
    where = {
        **track.model_dump(include=set(Machine.model_fields)),
        "results": str(Path(results) / name),
        **(runtime or {}),
    }
    resolver = Resolver(catalogue, track, check_model(Runtime, where, "runtime: "), iterations, limit)
    resolved = resolver.resolve()
    if tables is None:
        tables = [key for key, table in resolved.tables.items() if studies or not table.declaration.study]
    return restricted(resolved, tables)


def named_modules(config: Mapping[str, Any]) -> list[str]:
    """Return the modules of the package whose classes a config names by path, sorted."""
    names = (str(part.get("type")) for part in parts(config))
    return sorted({name.rpartition(".")[0] for name in names if name.startswith("pne.")})


def restricted(track: ResolvedTrack, names: Iterable[str]) -> ResolvedTrack:
    """Return some tables of a track with their runs alone.

    Raises
    ------
    UserError
        If the track has no such table.
    """
    names = list(names)
    for name in names:
        if name not in track.tables:
            raise UserError(f"track {track.name}: no table {name!r}; {suggest(name, track.tables)}")
    tables = {key: table for key, table in track.tables.items() if key in names}
    used = {run for table in tables.values() for row in table.rows.values() for run in row.runs.values()}
    return replace(track, tables=tables, runs={key: run for key, run in track.runs.items() if key in used})


class Resolver:
    """Resolves one track; holds what its tables share. The parameters are those of `load_track`, checked."""

    def __init__(
        self, catalogue: Catalogue, track: Track, runtime: Runtime, iterations: int | None, limit: int | None
    ) -> None:
        self.catalogue, self.track, self.runtime = catalogue, track, runtime
        self.iterations, self.limit = iterations, limit
        weights = track.initial_weights
        if weights == "weights_dir":
            weights = "imagenet" if track.weights_dir else "random"
        self.bases = BaseConfigs(catalogue.folder, weights)
        self.problems: list[str] = []
        self.runs: dict[str, Run] = {}
        self.configs: dict[str, RunConfig] = {}

    def resolve(self) -> ResolvedTrack:
        tables = {key: self._table(key, table) for key, table in self.catalogue.tables.items()}
        raise_problems(self.problems)
        for table in tables.values():
            if table.available and table.declaration.layout == "settings":
                table.settings.update(self._settings(table.declaration))
        return ResolvedTrack(self.track.track, self.track, self.runs, tables, self.configs)

    def _table(self, key: str, table: Table) -> ResolvedTable:
        offered = self.track.tables
        if offered is not None and key not in offered:
            reason = f"track {self.track.track} does not list the table {key}"
        else:
            reason = next((f"track {self.track.track} has no {lack}" for lack in self._lacks(table)), None)
        rows = {}
        for row_key, row in table.rows.items():
            runs: dict[int, str] = {}
            if row.is_trained:
                try:
                    named = self.catalogue.contrasts, self.track.contrast
                    contrast = None if row.contrast is None else resolve_contrast(row.contrast, *named)
                    if reason is None:
                        runs = self._runs(table, row, contrast)
                except UserError as error:
                    where = f"{self.catalogue.table_path(key)}: rows.{row_key}"
                    self.problems += [f"{where}: {line}" for line in str(error).splitlines()]
            rows[row_key] = ResolvedRow(row_key, row, runs, row.baseline)
        return ResolvedTable(key, table, rows, reason is None, reason)

    def _lacks(self, table: Table) -> Iterator[str]:
        """Say what of a table the track does not have."""
        track = self.track
        if table.layout == "settings":
            datasets = [name for name, column in table.columns.items() if column.kind == "setting"]
            yield from (f"data set {name}" for name in datasets if name not in track.datasets)
            return
        known = {"data set": track.datasets, "model": track.models, "schedule": track.schedules}
        for row in (row for row in table.rows.values() if row.is_trained):
            for (kind, names), word in zip(known.items(), table.words_of(row), strict=True):
                if word is not None and word not in names:
                    yield f"{kind} {word}"
        missing = missing_class(table, track)
        if missing is not None:
            yield missing

    def _runs(self, table: Table, row: Row, contrast: ResolvedContrast | None) -> dict[int, str]:
        words = [str(word) for word in table.words_of(row)]  # none is missing: the catalogue has been checked
        dataset, model, schedule = words
        try:
            base = self.bases.compose(
                self.track.datasets[dataset].config, self.track.models[model], self.track.schedules[schedule]
            )
        except UserError as error:
            self.problems += str(error).splitlines()  # of a file, whichever rows use it
            return {}
        changes = sized(row.config or {}, base["model"]["data_preprocessor"]["size"])
        check_changes(base, changes)
        runs = {}
        for seed in self.track.seeds:
            config = RunConfig(
                base,
                changes=changes,
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
            runs[seed] = self._run(config, base, words, table.evaluations)
        return runs

    def _run(self, config: RunConfig, base: Mapping[str, Any], words: list[str], evaluations: set[str]) -> str:
        dataset, model, schedule = words
        data, schedules = self.track.datasets[dataset], self.track.schedules
        # Two names of one file are one model; the first of the track names the run.
        dataset = next(key for key, other in self.track.datasets.items() if other.config == data.config)
        model = next(key for key, file in self.track.models.items() if file == self.track.models[model])
        config_sha256, digits = identify(config.plain, config.seed, config.precision)
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
        self.configs.setdefault(run, config)
        self.runs[run] = Run(
            run=run,
            track=self.track.track,
            dataset=dataset,
            dataset_title=self.track.datasets[dataset].title,
            layout=self.track.datasets[dataset].layout,
            folder=self.track.datasets[dataset].folder,
            model=model,
            schedule=schedule,
            contrast=config.contrast.description() if config.contrast else None,
            seed=config.seed,
            precision=config.precision,
            iterations=config.iterations,
            batch_size=config.plain["train_dataloader"]["batch_size"],
            config_sha256=config_sha256,
            modules=named_modules(config.plain),
            evaluations=sorted({"single_scale", *evaluations, *(known.evaluations if known else ())}, reverse=True),
            runtime=self.runtime,
        )
        return run

    def _settings(self, table: Table) -> dict[str, dict[str, list[tuple[float, list[str]]]]]:
        """Read every cell of a settings table from the configs of all runs on the column's data set."""
        columns = [name for name, column in table.columns.items() if column.kind == "setting"]
        return {
            key: {column: self._values(SETTINGS[str(row.reads)], column) for column in columns}
            for key, row in table.rows.items()
        }

    def _values(self, key: str, dataset: str) -> list[tuple[float, list[str]]]:
        models: dict[float, dict[str, None]] = {}
        for name, run in self.runs.items():
            if run.dataset == dataset:
                models.setdefault(value_at(self.configs[name].plain, key), {})[run.model] = None
        return sorted(((value, list(using)) for value, using in models.items()), key=lambda item: -len(item[1]))
