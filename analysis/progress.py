"""How far an unfinished run or evaluation is, read from what commands leave behind; nothing is locked or written."""

import json
import os
import socket
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from pne.spec import Run

State = Literal["finished", "running", "stopped", "failed", "missing"]

# On another host, a training that has not reported for this long (or 100 iterations) counts as stopped.
SILENCE_S = 900.0
_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Progress:
    """State of a run that has no complete result.

    Attributes
    ----------
    state : str
        running; stopped (interrupted or killed, resumes when asked for); failed; missing (never begun).
    iteration, total : int or None
    eta_s : float or None
        Seconds until the last iteration, of runs that train now.
    error : str or None
        Last error line of a failed run; it belongs to `iteration`, or came after it.
    """

    state: State
    iteration: int | None = None
    total: int | None = None
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
    iteration, total = report.get("iteration"), report.get("iterations", run.iterations)
    if report.get("state") == "failed":
        error = report.get("error") or last_error(log) or f"no error line; see {log}"
        return Progress("failed", iteration, total, error=str(error).strip())
    if report.get("state") in ("running", "evaluating") and _is_alive(report, now):
        eta_s = report.get("eta_s")
        spent_s = _age_s(report, now) or 0.0
        return Progress("running", iteration, total, eta_s=None if eta_s is None else max(0.0, eta_s - spent_s))
    if evaluation is not None and report.get("state") == "finished":  # its result has been removed since
        return Progress("missing")
    return Progress("stopped", iteration, total)


def _is_older(path: Path, other: Path) -> bool:
    try:
        return path.stat().st_mtime_ns < other.stat().st_mtime_ns
    except FileNotFoundError:
        return not path.exists()


def last_error(log: Path) -> str | None:
    """Return the last line of a log that names an error, or None."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        head = line.strip().split(" ", 1)[0]
        if head.lower() == "error:" or (head.endswith(":") and head.rstrip(":").endswith(("Error", "Exception"))):
            return line.strip().removeprefix("error: ")
    return None


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
    age_s = _age_s(report, now)
    return age_s is not None and age_s <= max(SILENCE_S, 100 * (report.get("time_s") or 0))


def _age_s(report: dict[str, Any], now: datetime) -> float | None:
    try:
        updated = datetime.fromisoformat(str(report["updated"]).replace("Z", "+00:00"))
    except (KeyError, ValueError):
        return None
    if updated.tzinfo is None:
        updated = updated.replace(tzinfo=timezone.utc)
    return (now - updated).total_seconds()
