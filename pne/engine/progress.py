"""``progress.json`` in a work directory: what a run is doing, for those who watch; for evaluations alike."""

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from pne.engine.failures import DivergenceError
from pne.engine.provenance import utc_now
from pne.errors import UserError
from pne.files import write_text


class Progress:
    """Write the state of one run, atomically; each call replaces the file.

    Parameters
    ----------
    path : Path
        The file.
    run : str
        Run id.
    iterations : int
        Iterations of the whole training.
    enabled : bool
        False in all but the first of several processes: nothing is written.

    Notes
    -----
    Keys: ``run``, ``state`` (``running``, ``evaluating``, ``interrupted``, ``failed``, ``finished``), ``iteration``,
    ``iterations``, ``time_s`` (seconds per iteration, lately; null at first), ``eta_s`` (seconds to the last one),
    ``error`` (one line; null unless failed; in ``iteration`` or after it), ``updated`` (ISO 8601, UTC), ``host``,
    ``pid``.
    """

    def __init__(self, path: Path, run: str, iterations: int, enabled: bool = True) -> None:
        self.path = path
        self.enabled = enabled
        self.content: dict[str, Any] = {
            "run": run,
            "state": "running",
            "iteration": 0,
            "iterations": iterations,
            "time_s": None,
            "eta_s": None,
            "error": None,
        }

    def update(self, state: str = "running", **changes: Any) -> None:
        """Write the file with a new state and changed values."""
        self.content.update(state=state, **changes)
        if self.content["time_s"] is not None:
            self.content["eta_s"] = self.content["time_s"] * (self.content["iterations"] - self.content["iteration"])
        if self.enabled:
            about = {"updated": utc_now(), "host": socket.gethostname(), "pid": os.getpid()}
            write_text(self.path, json.dumps(self.content | about, indent=1) + "\n")

    def fail(self, error: BaseException) -> None:
        """Note a failure by its first line; a full disk does not hide the failure itself."""
        where = {"iteration": error.iteration} if isinstance(error, DivergenceError) else {}
        text = error.what if isinstance(error, DivergenceError) else str(error) or type(error).__name__
        with suppress(UserError):
            self.update("failed", error=text.strip().splitlines()[0], **where)


def evaluation_path(work: Path, evaluation: str) -> Path:
    """File of the progress of an evaluation that is not part of a training."""
    return work / f"{evaluation}.progress.json"
