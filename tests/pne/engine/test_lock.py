"""A work directory belongs to one process."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pne.engine.locks import held
from pne.errors import UserError

TRY = (
    "import sys; from pathlib import Path; from pne.engine.locks import held\nwith held(Path(sys.argv[1])): print('in')"
)


def attempt(folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", TRY, str(folder)], capture_output=True, text=True, check=False)


def test_a_second_process_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with held(tmp_path / "work"):
        told = attempt(tmp_path / "work")
        assert told.returncode
        expected = f"another process trains this run (host {socket.gethostname()}, process {os.getpid()}"
        assert expected in told.stderr
    assert attempt(tmp_path / "work").stdout == "in\n"


def test_the_lock_is_released_by_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), held(tmp_path):
        raise ZeroDivisionError
    assert attempt(tmp_path).stdout == "in\n"


def test_the_same_process_cannot_enter_twice(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(UserError, match="another process"), held(tmp_path):
        pass
