"""From results and scores entered by hand to values: one long frame, a line per table, row, column and seed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd
from pydantic import Field, model_validator

from analysis.latex_text import quote
from analysis.uncertainty import Estimate, over_seeds
from pne.options import LOSSES, resolve_options
from pne.spec import ResolvedRow, ResolvedTable, ResolvedTrack
from pne.spec.reading import check_model, raise_problems, read_yaml, suggest
from pne.spec.schema import OF_TRAINING, Column, Strict

# What is the same for all columns of a run: how and on what it was trained.
CONDITIONS = ("batch", "precision", "dataset", "dataset_fingerprint", "device", "code")
VALUES = ("table", "row", "column", "seed", "run", "value", "notes", "confusion", *CONDITIONS)

STALE = "Stale: measured with other training code than today's."
MIXED = "Stale: resumed with other training code than it began with."
OUTDATED = "Outdated: evaluated on the weights of an earlier training."
PARTIAL = "Trained on a part of the data set: not comparable with published values."
OTHER_DATA = "Trained on other files of the data set than most of the table: compare fingerprints in the provenance."
OTHER_CPU = "Trained on another type of CPU than most of the table, so rounded otherwise"
BFLOAT16 = "Evaluated in bfloat16."
NO_SCORE = "No score of the evaluation server is entered in experiments/external.yaml."
NO_UNIT = "No ratio: the row that it is relative to has no value with this seed."
_ERROR_WIDTH = 160


class ExternalScore(Strict):
    """One score of an evaluation server; it belongs to a run, or to a row of a table on one track."""

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

    def belongs_to(self, track: str, table: str, row: str, runs: Iterable[str]) -> bool:
        """Whether the score is the given row's."""
        return self.run in runs if self.run is not None else self.place == (track, table, row)


class ExternalScores(Strict):
    """``experiments/external.yaml``."""

    scores: list[ExternalScore] | None


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
    data = read_yaml(path) if path.exists() else None
    if data is None:
        return ()
    scores = check_model(ExternalScores, data, f"{path}: ").scores or ()
    problems = []
    for index, score in enumerate(scores):
        where = f"{path}: scores.{index}"
        if score.place in {other.place for other in scores[:index]}:
            problems.append(f"{where}: a second score of {'.'.join(score.place)}; keep one")
        if track is None or score.table is None or score.track != track.name:
            continue
        if score.table not in track.tables:
            problems.append(f"{where}.table: no table {score.table!r}; {suggest(score.table, track.tables)}")
        elif score.row not in (rows := track.tables[score.table].rows):
            known = suggest(str(score.row), rows)
            problems.append(f"{where}.row: table {score.table} has no row {score.row!r}; {known}")
    raise_problems(problems)
    return tuple(scores)


def unplaced(scores: Sequence[ExternalScore], track: ResolvedTrack) -> tuple[str, ...]:
    """Return the run ids that scores name and that are none of the track's."""
    return tuple(score.run for score in scores if score.run is not None and score.run not in track.runs)


def collect_values(track: ResolvedTrack, results: pd.DataFrame, scores: Sequence[ExternalScore] = ()) -> pd.DataFrame:
    """Look up every measured number of the tables that a track offers.

    What `OF_TRAINING` names comes from training, other metrics from the column's evaluation (default: the table's),
    scores of an evaluation server from `load_external`. Columns with nothing to measure have no lines.

    Parameters
    ----------
    track : ResolvedTrack
    results : DataFrame
        From `analysis.results.collect_runs`.
    scores : sequence of ExternalScore

    Returns
    -------
    DataFrame
        Columns `VALUES`, one line per table, row, column and seed. ``value`` in the column's unit, None where it is
        missing; ``notes`` (LaTeX text) say why, or what must be known of it; ``confusion`` is the file of counts behind
        it. The others say how the run was trained, None where it was not.
    """
    records: dict[tuple[str, str | None], dict[str, Any]] = {}
    for record in results.to_dict("records"):
        records[record["run"], record["evaluation"]] = record
        records.setdefault((record["run"], None), record)  # what training left is the same in all
    lines = []
    for table in track.tables.values():
        first = len(lines)
        for key, column in table.declaration.columns.items():
            for row in table.rows.values() if table.available else ():
                found: Iterable[dict[str, Any]] = ()
                if column.kind == "external" and row.runs:
                    found = [_external_line(table, row, track, scores)]
                elif column.kind == "metric" and _applies(column, row, track):
                    found = _measured_lines(table, row, column, records)
                lines += [{"table": table.key, "row": row.key, "column": key, **line} for line in found]
        _note_conditions(lines[first:])
    return pd.DataFrame(lines, columns=list(VALUES), dtype=object)


def _measured_lines(
    table: ResolvedTable, row: ResolvedRow, column: Column, records: Mapping[tuple, dict]
) -> Iterator[dict[str, Any]]:
    metric, of_training = column.metric, column.metric in OF_TRAINING
    evaluation = None if of_training else column.evaluation or table.declaration.evaluation
    for seed, run in row.runs.items():
        record = records.get((run, evaluation), {"state": "missing"})
        known = {key: value for key, value in record.items() if not pd.isna(value)}
        if {"world_size", "micro_batch"} <= known.keys():
            known["batch"] = _batch_text(int(known["world_size"]), int(known["micro_batch"]))
        if "stale" in known and (not known["stale"] or "git_commit" in known):
            known["code"] = f"commit {known['git_commit'][:10]}" if known["stale"] else "today's code"
        found = known.get("class_iou", {}).get(column.class_name) if column.class_name else known.get(metric)
        value = None if pd.isna(found) else float(found)
        notes = (_reason(known, metric),) if value is None else tuple(_warnings(known, of_training))
        if value is not None and column.relative_to is not None:
            unit = records.get((table.rows[column.relative_to].runs.get(seed), evaluation), {}).get(metric)
            value, notes = (None, (NO_UNIT,)) if pd.isna(unit) or unit == 0 else (value / unit, notes)
        conditions = {key: known.get(key) for key in ("confusion", *CONDITIONS)}
        yield {"seed": seed, "run": run, "value": value, "notes": notes, **conditions}


def _note_conditions(lines: Sequence[dict[str, Any]]) -> None:
    """Note beside each value of a table where its run was trained otherwise than most of the table."""
    runs = {line["run"]: line for line in lines if "run" in line}.values()
    counts = {name: Counter(run[name] for run in runs if run[name] is not None) for name in CONDITIONS}
    usual = {name: count.most_common(1)[0][0] for name, count in counts.items() if len(count) > 1}
    for line in (line for line in lines if line["value"] is not None):
        for name, most in usual.items():
            own = line.get(name)
            if own in (None, most):
                continue
            if name in ("batch", "code"):
                line["notes"] += (f"Trained with {own}; most of the table: {most}.",)
            elif name == "device" and own.startswith("cpu") and most.startswith("cpu"):
                line["notes"] += (f"{OTHER_CPU}: {quote(own)} against {quote(most)}.",)
            elif name == "dataset_fingerprint" and len(counts["dataset"]) == 1:
                line["notes"] += (OTHER_DATA,)


def _batch_text(world: int, micro: int) -> str:
    return f"{world} process{'es' if world > 1 else ''} of {micro} image{'s' if micro > 1 else ''} per forward pass"


def _applies(column: Column, row: ResolvedRow, track: ResolvedTrack) -> bool:
    """Per-positive weights exist only for losses that weigh positives, gradients of embeddings only with a contrast."""
    contrasts = [track.runs[run].contrast for run in row.runs.values()]
    if column.metric == "gradient_norm":
        return None not in contrasts
    return column.metric != "weight_std" or all(map(_weighs_positives, contrasts))


def _weighs_positives(contrast: Mapping[str, Any] | None) -> bool:
    if contrast is None or contrast["loss"] not in LOSSES:
        return False
    return resolve_options(contrast["loss"], contrast["options"]).get("positive_weight") is not None


def _external_line(
    table: ResolvedTable, row: ResolvedRow, track: ResolvedTrack, scores: Sequence[ExternalScore]
) -> dict[str, Any]:
    found = [score for score in scores if score.belongs_to(track.name, table.key, row.key, row.runs.values())]
    if found:
        note = f"Evaluation server, {found[-1].date.isoformat()}: {quote(found[-1].url)}"
        return {"seed": 0, "value": found[-1].miou, "notes": (note,)}
    others = unplaced(scores, track)
    elsewhere = f" Scores are entered for other runs: {quote(', '.join(others))}." if others else ""
    return {"seed": 0, "value": None, "notes": (NO_SCORE + elsewhere,)}


def _reason(record: Mapping[str, Any], metric: str) -> str:
    """Say why a value is missing."""
    state = record["state"]
    if state == "finished":
        return f"The result holds no {quote(metric)}."
    trained, iteration = "time_s" in record, record.get("iteration", 0)
    at = "" if trained or iteration == 0 else f" at iteration {int(iteration)}"
    if state == "failed":
        error = str(record["error"])
        short = error if len(error) <= _ERROR_WIDTH else f"{error[: _ERROR_WIDTH - 1]}…"
        return f"{'Trained, but the evaluation failed' if trained else 'Failed'}{at}: {quote(short)}"
    if trained:
        return "Trained, but not evaluated yet."
    if state in ("running", "stopped"):
        return f"{'Still running' if state == 'running' else 'Stopped'}{at}."
    return "Not run yet."


def _warnings(record: Mapping[str, Any], of_training: bool) -> Iterator[str]:
    """Say what must be known of a value."""
    if record.get("mixed_code"):
        yield MIXED
    elif record.get("stale"):
        yield STALE
    if record.get("outdated") and not of_training:
        yield OUTDATED
    if record.get("bfloat16") and not of_training:
        yield BFLOAT16
    if record.get("dataset_complete") is False:
        yield PARTIAL
    if record.get("healthy") is False:
        share = 100 * float(record["active_fraction"])
        yield rf"Unhealthy contrast: the term was active in only {share:.0f}\,\% of the iterations."


@dataclass(frozen=True)
class Series:
    """The values of one row and column over its seeds.

    Attributes
    ----------
    by_seed : mapping of int to float
        Values in the column's unit.
    notes : tuple of str
        LaTeX text; the first one says which seeds are missing, if some are.
    """

    by_seed: Mapping[int, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return fmean(self.by_seed.values()) if self.by_seed else None

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over seeds; None for one seed."""
        return stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    def minus(self, other: "Series") -> Estimate | None:
        """Estimate the difference from the seeds that both have; None without one."""
        differences = [self.by_seed[seed] - other.by_seed[seed] for seed in self.by_seed if seed in other.by_seed]
        return over_seeds(differences) if differences else None


def series_of(lines: pd.DataFrame) -> Series:
    """Gather the lines of one row and column of `collect_values`."""
    there = {line.seed: line.value for line in lines.itertuples() if line.value is not None}
    reasons = {line.seed: line.notes[0] for line in lines.itertuples() if line.value is None}
    notes = [note for line in lines.itertuples() if line.value is not None for note in line.notes]
    if len(reasons) == len(lines) and len(set(reasons.values())) == 1:
        notes = list(reasons.values())
    elif reasons:
        detail = " ".join(f"Seed {seed}: {reason[0].lower()}{reason[1:]}" for seed, reason in reasons.items())
        notes.insert(0, f"n = {len(there)} of {len(lines)} seeds. {detail}")
    return Series(there, tuple(dict.fromkeys(notes)))


def conditions(lines: pd.DataFrame, key: str) -> Counter[Any]:
    """Count the values of one of `CONDITIONS` over the runs of some lines of `collect_values`."""
    return Counter(lines.drop_duplicates("run")[key].dropna())
