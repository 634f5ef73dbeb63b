"""A track and its results, as all commands of the analysis read them: one frame, a row per run and evaluation."""

import argparse
import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd

from analysis.latex_text import check_texts
from pne.errors import UserError
from pne.results import EvaluationResult, Result, TrainResult, confusion_path, read_result_of
from pne.spec import ResolvedTrack, Run, load_track

SCORES = ("miou", "aacc", "class_iou", "boundary_iou", "calibration_error", "images")
COLUMNS = (
    *("run", "dataset", "dataset_title", "model", "loss", "seed", "evaluation", "state", "error", "iteration", "eta_s"),
    *SCORES,
    *("time_s", "peak_memory_mib", "memory_kind", "gradient_norm", "weight_std", "healthy"),
    *("active_fraction", "stale", "mixed_code", "outdated", "dataset_complete", "dataset_fingerprint", "bfloat16"),
    *("precision", "world_size", "micro_batch", "device", "git_commit", "ended", "confusion"),
)

# On another host, a training that has not reported for this long (or 100 iterations) counts as stopped.
SILENCE_S = 900.0
_TAIL_BYTES = 64 * 1024
_ERROR = re.compile(r"((?i:error)|\S*(Error|Exception)):(\s|$)")


def track_parser(prog: str, description: str, *, only_tables: bool = False) -> argparse.ArgumentParser:
    """Return a parser with the options that say which track is meant, where its files are, and which tables of it."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--track", default="quick", help="name of experiments/tracks/<track>.yaml (default: quick)")
    parser.add_argument("--experiments", type=Path, default=Path("experiments"), help="folder of the declarations")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--source", choices=["archive"], help="read results from RESULTS/archive alone")
    parser.add_argument("--data-root", type=Path, default=None, help="folder of the data sets")
    parser.add_argument("--weights-dir", type=Path, default=None, help="folder of the ImageNet weights")
    parser.add_argument("--seeds", type=_integers, nargs="+", default=None, help="such as 0,1,2 (default: the track's)")
    parser.add_argument("--iterations", type=int, default=None, help="of runs that were shortened for a try")
    if only_tables:
        parser.add_argument("--table", action="append", help="only this table; several times for more (default: all)")
    return parser


def archived_tracks(
    experiments: Path, results: Path, first: str | None = None, **options: Any
) -> Iterator[ResolvedTrack]:
    """Resolve each track that has a folder in the archive, the named one first; results are read from there."""
    names = (path.name for path in results.glob("archive/*") if path.is_dir())
    options |= {"experiments": experiments, "results": results, "runtime": {"source": "archive"}}
    for name in sorted(names, key=lambda name: (name != first, name)):
        yield load_track(name, **options)


def resolve(args: argparse.Namespace, **changes: Any) -> ResolvedTrack:
    """Resolve the track that the arguments name; shortened runs are comparable with nothing published."""
    names = ("experiments", "results", "data_root", "weights_dir", "iterations")
    seeds = None if args.seeds is None else [seed for part in args.seeds for seed in part]
    changes["runtime"] = {"source": args.source}
    track = load_track(args.track, seeds=seeds, **{name: getattr(args, name) for name in names}, **changes)
    check_texts(track)
    return track if args.iterations is None else _incomparable(track)


def read_results(track: ResolvedTrack) -> pd.DataFrame:
    """Read the results of all runs of a track, marking those of other training code than today's as stale."""
    from pne.engine.provenance import code_sha256

    return collect_runs(track.runs.values(), code_sha256)


def read_for_comparison(track: ResolvedTrack) -> tuple[ResolvedTrack, pd.DataFrame]:
    """Read the results of a track; trained on a part of a data set, it is comparable with nothing published."""
    frame = read_results(track)
    partial = any(complete is False for complete in frame["dataset_complete"])
    return (_incomparable(track) if partial else track), frame


def _incomparable(track: ResolvedTrack) -> ResolvedTrack:
    return replace(track, declaration=track.declaration.model_copy(update={"comparable": False}))


def _integers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected integers separated by commas, got {text!r}") from None


def collect_runs(
    runs: Iterable[Run], code_sha256: Callable[[Run], str] | None = None, now: datetime | None = None
) -> pd.DataFrame:
    """Read all results of the given runs.

    Parameters
    ----------
    runs : iterable of Run
    code_sha256 : callable, optional
        Gives the hash of today's code that counts for a run; a result of other code is stale. None: none is.
    now : datetime, optional
        Aware; default: the current time.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`, one row per run and evaluation the run is asked for, whatever its state: *finished*,
        *running*, *stopped*, *failed* or *missing*. ``miou`` and ``aacc`` in percent, ``class_iou`` a dict of percent,
        ``time_s`` the seconds of one training iteration, ``gradient_norm`` (of the term on the embeddings, with its
        weight), ``weight_std`` and ``healthy`` of runs with a contrast,
        ``dataset_complete`` whether the data set had its official number of images (None: it has none),
        ``bfloat16`` whether it was evaluated so, ``stale`` whether other training code than today's made any part of
        the result, ``mixed_code`` whether different code trained before and after a resume, ``outdated`` whether the
        evaluation belongs to other weights than the training result. A result file that cannot be read counts as
        failed, with the reason in ``error``.
    """
    records = []
    for run in runs:
        train, train_error = _read(run, "train", TrainResult)
        common = run.model_dump(include={"run", "dataset", "dataset_title", "model", "seed", "precision"})
        common["loss"] = None if run.contrast is None else run.contrast["loss"]
        common |= {} if train is None else _of_training(train, run, code_sha256 and code_sha256(run))
        for name in run.evaluations:
            result, error = _read(run, name, EvaluationResult)
            record = common | {"evaluation": name}
            if result is not None and train is not None:
                record |= result.model_dump(include={*SCORES, "bfloat16"})
                record |= {"state": "finished", "outdated": result.weights_sha256 != train.weights_sha256}
                record["confusion"] = confusion_path(run.directory, name)
            elif damage := train_error or error:
                record |= {"state": "failed", "error": damage}
            else:
                record |= read_progress(run, None if train is None else name, now)._asdict()
            records.append(record)
    return pd.DataFrame(records, columns=list(COLUMNS))


def _of_training(train: TrainResult, run: Run, code_sha256: str | None) -> dict[str, Any]:
    contrast, weight = train.contrast, (run.contrast or {}).get("weight")
    norm = None if contrast is None else contrast.final_statistics.get("gradient_norm")
    about = {"dataset_fingerprint", "world_size", "micro_batch", "device", "git_commit", "ended"}
    return {
        **train.model_dump(include={"time_s", "peak_memory_mib", "memory_kind", "dataset_complete"}),
        **train.provenance.model_dump(include=about),
        "weight_std": None if contrast is None else contrast.final_statistics.get("weight_std"),
        "gradient_norm": None if norm is None else weight * norm,
        "healthy": None if contrast is None else contrast.healthy,
        "active_fraction": None if contrast is None else contrast.active_fraction,
        "stale": code_sha256 is not None and not train.is_from(code_sha256),
        "mixed_code": bool(train.earlier_code_sha256),
    }


def _read(run: Run, name: str, kind: type[Result]) -> tuple[Result | None, str | None]:
    """Return the result, or None with the reason when a file is there but vouches for no result of this run."""
    try:
        return (read_result_of(run, name, kind), None) if (run.directory / f"{name}.json").exists() else (None, None)
    except UserError as error:
        return None, str(error)


class Progress(NamedTuple):
    """State of a run that has no complete result.

    Attributes
    ----------
    state : str
        running; stopped (interrupted or killed, resumes when asked for); failed; missing (never begun).
    iteration : int or None
    eta_s : float or None
        Seconds until the last iteration, of runs that train now.
    error : str or None
        Last error line of a failed run; it belongs to `iteration`, or came after it.
    """

    state: Literal["running", "stopped", "failed", "missing"]
    iteration: int | None = None
    eta_s: float | None = None
    error: str | None = None


def read_progress(run: Run, evaluation: str | None = None, now: datetime | None = None) -> Progress:
    """Read the state of an unfinished run, or of an evaluation of a trained one.

    Parameters
    ----------
    run : Run
    evaluation : str, optional
        An evaluation that follows training as a command of its own.
    now : datetime, optional
        Aware; default: the current time.
    """
    now = now or datetime.now(timezone.utc)
    prefix = "" if evaluation is None else f"{evaluation}."
    file, log = run.work_directory / f"{prefix}progress.json", run.directory / f"{prefix}log"
    trained = run.directory / "train.json"
    if evaluation is not None and all(_is_older(path, trained) for path in (file, log)):
        return Progress("missing")  # what went before was of an earlier training
    report = _report(file)
    if report is None:
        error = last_error(log)
        return Progress("failed", error=error) if error else Progress("missing")
    iteration = report.get("iteration")
    if report.get("state") == "failed":
        error = report.get("error") or last_error(log) or f"no error line; see {log}"
        return Progress("failed", iteration, error=str(error).strip())
    if report.get("state") in ("running", "evaluating") and _is_alive(report, now):
        eta_s = report.get("eta_s")
        left_s = None if eta_s is None else max(0.0, eta_s - _age_s(report, now))
        return Progress("running", iteration, left_s)
    if evaluation is not None and report.get("state") == "finished":  # its result has been removed since
        return Progress("missing")
    return Progress("stopped", iteration)


def _is_older(path: Path, other: Path) -> bool:
    try:
        return path.stat().st_mtime_ns < other.stat().st_mtime_ns
    except FileNotFoundError:
        return not path.exists()


def last_error(log: Path) -> str | None:
    """Return the last line of a log that names an error, or None."""
    try:
        text = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
    except OSError:
        return None
    found = [line for line in map(str.strip, text.splitlines()) if _ERROR.match(line)]
    return found[-1].removeprefix("error: ") if found else None


def _report(path: Path) -> dict[str, Any] | None:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) else None


def _is_alive(report: dict[str, Any], now: datetime) -> bool:
    """Ask for the process where it runs on this host; elsewhere a report that is not too old has to do."""
    pid = report.get("pid")
    if report.get("host") == socket.gethostname() and isinstance(pid, int):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True
    return _age_s(report, now) <= max(SILENCE_S, 100 * (report.get("time_s") or 0))


def _age_s(report: dict[str, Any], now: datetime) -> float:
    """Return the seconds since a report; NaN where it does not say when it was made."""
    return (now - pd.to_datetime(str(report.get("updated")), utc=True, errors="coerce")).total_seconds()
