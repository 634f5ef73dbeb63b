"""One process per rehearsal: its log, what it ended with, and signals passed on to it."""

import signal
import subprocess
import sys
from pathlib import Path

from pne.engine.interruption import StopRequest

POLL_S = 0.2


def run_child(spec: Path, log: Path, request: StopRequest) -> int:
    """Rehearse a spec in a process of its own, and return its exit status (negative: killed by that signal).

    Parameters
    ----------
    spec : Path
        ``spec.yaml`` of the rehearsal.
    log : Path
        Gets everything that the process prints; an older one is replaced.
    request : StopRequest
        A signal to this process is passed on.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pne.rehearsal", str(spec)]
    with log.open("wb") as stream, subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT) as process:
        passed_on = False
        while True:
            try:
                return process.wait(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                if request.signum and not passed_on:
                    process.send_signal(request.signum)
                    passed_on = True


def reason(status: int, log: Path) -> str:
    """Say in a few words why a process failed: its own last error message, or the signal that killed it."""
    if status < 0:
        name = signal.Signals(-status).name
        hint = "; the machine may have run out of memory" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [index for index, line in enumerate(lines) if line.startswith("error: ")]
    if errors:
        return lines[errors[-1]].removeprefix("error: ")
    return lines[-1] if lines else f"exit status {status}"
