"""A work directory belongs to one process, and each process gets a GPU of its own, whatever the others do."""

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from pne.engine import locks
from pne.engine.locks import claimed_devices, held, visible_devices
from pne.errors import UserError

TRY = (
    "import sys; from pathlib import Path; from pne.engine.locks import held\nwith held(Path(sys.argv[1])): print('in')"
)
HOLD = """
import sys, time
from pathlib import Path
from pne.engine.locks import claimed_devices
with claimed_devices(1, folder=Path(sys.argv[1])) as names:
    print(*names, flush=True)
    time.sleep(60)
"""


def test_a_second_holder_is_told_who_holds_the_folder_until_an_error_releases_it(tmp_path: Path) -> None:
    attempt = [sys.executable, "-c", TRY, str(tmp_path / "work")]
    with suppress(ZeroDivisionError), held(tmp_path / "work"):
        expected = f"another process trains this run (host {socket.gethostname()}, process {os.getpid()}"
        assert expected in subprocess.run(attempt, capture_output=True, text=True, check=False).stderr
        with pytest.raises(UserError, match="another process"), held(tmp_path / "work"):
            pass
        raise ZeroDivisionError
    assert subprocess.check_output(attempt, text=True) == "in\n"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EROFS])
def test_a_folder_that_cannot_be_locked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A file system without flock, or one that cannot be written."""

    def refuse(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UserError, match=rf"lock: cannot be locked \({os.strerror(code)}\).*flock"), held(tmp_path):
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    with pytest.raises(UserError, match=r"gpu4\.lock: cannot be locked"), claimed_devices(1, folder=tmp_path):
        pass


def test_what_holds_a_folder_of_a_machine_that_is_gone_is_named(tmp_path: Path) -> None:
    with (
        held(tmp_path),
        pytest.raises(UserError, match=f"its machine is gone, delete {tmp_path / 'lock'}$"),
        held(tmp_path),
    ):
        pass


def test_what_a_killed_process_was_writing_is_deleted(tmp_path: Path) -> None:
    stage, kept = tmp_path / "complete", tmp_path / "iter_5.pth"
    stage.mkdir()
    kept.write_text("whole")
    left = [tmp_path / ".iter_6.0123abcd.pth", stage / ".final.89abcdef.pth"]
    for path in left:
        path.write_text("half")
    with held(tmp_path):
        assert kept.exists()
        assert not any(path.exists() for path in left)


@pytest.fixture
def two_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in locks.JOB_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")


@contextmanager
def holder(folder: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """Another process that holds a device until it is killed, as hard as a process can end."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.usefixtures("two_visible_devices")
def test_processes_share_two_devices_one_at_a_time_or_wait_for_both(tmp_path: Path) -> None:
    with holder(tmp_path) as (first, device), holder(tmp_path) as (second, freed):
        assert {device, freed} == {"4", "7"}
        lines = []
        free = lambda line: lines.append(line) or second.kill()  # noqa: E731
        with claimed_devices(1, folder=tmp_path, report=free) as names:
            assert list(names) == [freed] == [os.environ["CUDA_VISIBLE_DEVICES"]]
        assert lines == ["waiting for 1 free GPU of 4, 7"]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"
        with claimed_devices(2, folder=tmp_path, report=lambda line: first.kill()) as names:
            assert list(names) == ["4", "7"]


@pytest.mark.usefixtures("two_visible_devices")
def test_jobs_of_a_scheduler_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job may see its own GPU as number 0."""
    folders = {locks.default_folder()}
    for job in ("12", "13"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        folders.add(locks.default_folder())
    assert len(folders) == 3


def test_cuda_reads_names_up_to_an_invalid_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 0,-1,1")
    assert visible_devices() == ["2", "0"]


CUDA = """
#include <stdlib.h>
#include <string.h>
static const char *uuids(void) { return getenv("FAKE_GPUS"); }
int cuInit(unsigned flags) { return uuids() ? 0 : 100; }
int cuDeviceGetCount(int *count) { *count = strlen(uuids()); return 0; }
int cuDeviceGet(int *device, int index) { *device = index + 40; return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, uuids()[device - 40], 16); return 0; }
"""
LOCKS = [f"{'61' * 16}.lock", f"{'62' * 16}.lock"]  # by the UUIDs of the devices a and b


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of programs, the only one on PATH, beside a made-up driver of CUDA with the GPUs a and b."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler to make a driver with")
    (tmp_path / "cuda.c").write_text(CUDA)
    library = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "cuda.c"], check=True)
    (tmp_path / "bin").mkdir()
    for name, value in {"LD_LIBRARY_PATH": tmp_path, "PATH": tmp_path / "bin", "FAKE_GPUS": "ab"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "bin"


def smi(folder: Path, listed: str) -> None:
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncase $1 in --list-gpus) echo '{listed}' ;; esac\n")
    (folder / "nvidia-smi").chmod(0o755)


def locked(folder: Path) -> list[str]:
    return sorted(path.name.removeprefix("gpu") for path in folder.glob("*.lock"))


def test_without_nvidia_smi_cuda_itself_is_asked(driver: Path, tmp_path: Path) -> None:
    assert visible_devices() == ["0", "1"]
    with claimed_devices(2, folder=tmp_path) as names:
        assert list(names) == ["0", "1"]
        assert locked(tmp_path) == LOCKS


def test_steps_that_call_their_devices_alike_do_not_wait_for_each_other(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with ExitStack() as claims:
        for device in "ab":
            monkeypatch.setenv("FAKE_GPUS", device)
            assert list(claims.enter_context(claimed_devices(1, folder=tmp_path, report=pytest.fail))) == ["0"]
        assert locked(tmp_path) == LOCKS


def test_instances_of_a_gpu_are_claimed_one_by_one(driver: Path, tmp_path: Path) -> None:
    smi(driver, "GPU 0: A100 (UUID: GPU-1)\n  MIG 3g Device 0: (UUID: MIG-2)\n  MIG 3g Device 1: (UUID: MIG-3)")
    assert visible_devices() == ["MIG-2", "MIG-3"]
    with claimed_devices(1, folder=tmp_path):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-2"
        assert locked(tmp_path) == ["MIG-2.lock"]
    with pytest.raises(UserError, match=r"MIG instances \(MIG-2, MIG-3\) cannot train a run together"):
        claimed_devices(2, folder=tmp_path).__enter__()


def test_a_driver_that_cannot_be_asked_leaves_what_nvidia_smi_lists(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(driver, "GPU 0: A100 (UUID: GPU-1)\nGPU 1: A100 (UUID: GPU-2)")
    monkeypatch.delenv("FAKE_GPUS")
    with claimed_devices(1, folder=tmp_path) as names:
        assert list(names) == ["0"]
        assert locked(tmp_path) == ["0.lock"]


@pytest.mark.parametrize("visible", ["", "-1"])
@pytest.mark.usefixtures("two_visible_devices")
def test_without_a_device_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with claimed_devices(1, folder=tmp_path) as names:
        assert list(names) == []
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


@pytest.mark.parametrize(
    ("visible", "count", "message"),
    [
        ("-1", 2, "gpus: 2 asked for, but 0 visible"),  # not one process on the CPU
        ("4,7", 3, r"gpus: 3 asked for, but 2 visible \(CUDA_VISIBLE_DEVICES=4,7\).*gpus=2"),
    ],
)
def test_more_devices_than_there_are_is_an_error(
    visible: str, count: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(UserError, match=message), claimed_devices(count):
        pass
