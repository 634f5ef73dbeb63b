"""One process per work directory: a file lock that says who holds it."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pne.engine.provenance import utc_now
from pne.errors import UserError
from pne.files import write_text


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the lock of a work directory inside the block.

    The operating system releases it when the process ends, however it ends.

    Raises
    ------
    UserError
        If another process holds it, with its host and process id.
    """
    directory.mkdir(parents=True, exist_ok=True)
    holder = directory / "lock.holder"
    lock = FileLock(directory / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"{directory}: another process trains this run ({_name(holder)}); wait for it, or stop it, then try again"
        ) from None
    try:
        write_text(holder, json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": utc_now()}) + "\n")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _name(holder: Path) -> str:
    try:
        who = json.loads(holder.read_text(encoding="utf-8"))
        return f"host {who['host']}, process {who['pid']}, since {who['since']}"
    except (OSError, ValueError, KeyError):
        return "its host and process id are not known yet"
