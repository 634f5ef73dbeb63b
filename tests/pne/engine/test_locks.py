"""A work directory belongs to one process, and each process gets a GPU of its own, whatever the others do."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pne.engine import locks
from pne.engine.locks import claimed_devices, held
from pne.errors import UserError

TRY = (
    "import sys; from pathlib import Path; from pne.engine.locks import held\nwith held(Path(sys.argv[1])): print('in')"
)
HOLD = """
import sys, time
from pathlib import Path
from pne.engine.locks import claimed_devices
with claimed_devices(int(sys.argv[1]), folder=Path(sys.argv[2])) as names:
    Path(sys.argv[3]).write_text(",".join(names))
    time.sleep(60)
"""


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


@pytest.fixture
def two_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in locks.JOB_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")


def holder(folder: Path, count: int, name: str) -> tuple[subprocess.Popen, str]:
    """Another process that holds devices until it is killed."""
    told = folder / name
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(count), str(folder), str(told)])
    while not (told.exists() and told.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    return process, told.read_text()


@pytest.mark.usefixtures("two_visible_devices")
def test_the_environment_names_the_claimed_device_inside_the_block_only(tmp_path: Path) -> None:
    with claimed_devices(1, folder=tmp_path) as names:
        assert list(names) == ["4"]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "4"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"


@pytest.mark.usefixtures("two_visible_devices")
def test_three_processes_share_two_devices_one_at_a_time(tmp_path: Path) -> None:
    first, first_device = holder(tmp_path, 1, "first")
    second, second_device = holder(tmp_path, 1, "second")
    try:
        assert {first_device, second_device} == {"4", "7"}
        lines = []

        def free_one(line: str) -> None:
            lines.append(line)
            second.kill()  # as hard as a process can end

        with claimed_devices(1, folder=tmp_path, report=free_one) as names:
            assert list(names) == [second_device]
        assert lines == ["waiting for 1 free GPU of 4, 7"]
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


@pytest.mark.usefixtures("two_visible_devices")
def test_a_run_of_two_devices_waits_for_both(tmp_path: Path) -> None:
    other, _ = holder(tmp_path, 1, "other")
    try:
        with claimed_devices(2, folder=tmp_path, report=lambda line: other.kill()) as names:
            assert list(names) == ["4", "7"]
    finally:
        other.kill()
        other.wait()


@pytest.mark.usefixtures("two_visible_devices")
def test_jobs_of_a_scheduler_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job may see its own GPU as number 0."""
    folders = set()
    for job in ("12", "13"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        folders.add(locks.default_folder())
    monkeypatch.delenv("SLURM_JOB_ID")
    folders.add(locks.default_folder())
    assert len(folders) == 3


@pytest.mark.parametrize("visible", ["", "-1"])
@pytest.mark.usefixtures("two_visible_devices")
def test_without_a_device_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with claimed_devices(1, folder=tmp_path) as names:
        assert list(names) == []
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


@pytest.mark.usefixtures("two_visible_devices")
def test_more_devices_than_there_are_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gpus: 3 asked for, but 2 visible \(CUDA_VISIBLE_DEVICES=4,7\).*gpus=2"):
        claimed_devices(3, folder=tmp_path).__enter__()
