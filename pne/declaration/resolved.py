"""A resolved track: its tables, their rows, and the runs that the rows point at."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mmengine.config import Config

from pne.declaration.build import RunConfig
from pne.declaration.placement import place
from pne.declaration.schema import Row, Table, Track
from pne.errors import UserError
from pne.spec import Run


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
