"""Scores of an evaluation server, entered by hand in ``experiments/external.yaml``."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pne.declaration.reading import suggest
from pne.errors import UserError
from pne.resolve import ResolvedTrack


class ExternalScore(BaseModel):
    """One score; it belongs to a run, or to a row of a table on one track."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    run: str | None = Field(default=None, description="Run id; or name table and row instead.")
    table: str | None = None
    row: str | None = None
    track: str = Field(default="paper", description="Track that a table and row refer to.")
    miou: float = Field(ge=0, le=100, description="Percent.")
    date: date
    url: str = Field(min_length=1, description="Where the server shows the score.")

    @model_validator(mode="after")
    def _names_one_place(self) -> "ExternalScore":
        place = (self.table is not None, self.row is not None)
        if (self.run is not None and any(place)) or (self.run is None and not all(place)):
            raise ValueError("a score names a run, or a table and a row")
        return self

    @property
    def place(self) -> tuple[str, ...]:
        """What the score belongs to."""
        return (self.run,) if self.run is not None else (self.track, str(self.table), str(self.row))

    def belongs_to(self, track: str, table: str, row: str, runs: tuple[str, ...]) -> bool:
        """Whether the score is the given row's."""
        if self.run is not None:
            return self.run in runs
        return (self.track, self.table, self.row) == (track, table, row)


def load_external(path: Path, track: ResolvedTrack | None = None) -> tuple[ExternalScore, ...]:
    """Read the scores; a missing or empty file holds none.

    Parameters
    ----------
    path : Path
    track : ResolvedTrack, optional
        Its tables and rows are known: a score for others of this track is an error. Run ids are not checked, since a
        score of a run with other settings or another seed than today's is no mistake; see `unplaced`.

    Raises
    ------
    UserError
        If the file is no YAML, an entry does not fit, or two are of one place, naming file, entry and key.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not readable as YAML: {error}") from error
    if content is None:
        return ()
    if not isinstance(content, dict) or set(content) != {"scores"} or not isinstance(content["scores"] or [], list):
        raise UserError(
            f"{path}: expected one key, scores, with a list of entries (run or table and row, miou, date, url)"
        )
    scores = []
    for index, entry in enumerate(content["scores"] or []):
        try:
            scores.append(ExternalScore.model_validate(entry))
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, (f"scores[{index}]", *first["loc"])))
            raise UserError(f"{path}: {key}: {first['msg']}, got {first['input']!r}") from error
        _check_place(f"{path}: scores[{index}]", scores, track)
    return tuple(scores)


def unplaced(scores: Sequence[ExternalScore], track: ResolvedTrack) -> tuple[str, ...]:
    """Return the run ids that scores name and that are none of the track's."""
    return tuple(score.run for score in scores if score.run is not None and score.run not in track.runs)


def _check_place(where: str, scores: Sequence[ExternalScore], track: ResolvedTrack | None) -> None:
    *earlier, score = scores
    if score.place in {other.place for other in earlier}:
        raise UserError(f"{where}: a second score of {'.'.join(score.place)}; keep one")
    if track is None or score.table is None or score.track != track.name:
        return
    if score.table not in track.tables:
        raise UserError(f"{where}.table: no table {score.table!r}; {suggest(score.table, track.tables)}")
    rows = track.tables[score.table].rows
    if score.row not in rows:
        raise UserError(f"{where}.row: table {score.table} has no row {score.row!r}; {suggest(str(score.row), rows)}")
