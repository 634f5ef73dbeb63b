"""A work directory belongs to one process, and each process gets a GPU of its own, whatever the others do."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
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
FIRST, SECOND = "61" * 16, "62" * 16  # the UUIDs of the devices a and b


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
    return sorted(path.name for path in folder.glob("*.lock"))


def test_without_nvidia_smi_cuda_itself_is_asked(driver: Path, tmp_path: Path) -> None:
    assert visible_devices() == ["0", "1"]
    with claimed_devices(2, folder=tmp_path) as names:
        assert list(names) == ["0", "1"]
        assert locked(tmp_path) == [f"gpu{FIRST}.lock", f"gpu{SECOND}.lock"]


def test_steps_that_call_their_devices_alike_do_not_wait_for_each_other(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with ExitStack() as claims:
        for device in "ab":
            monkeypatch.setenv("FAKE_GPUS", device)
            assert list(claims.enter_context(claimed_devices(1, folder=tmp_path, report=pytest.fail))) == ["0"]
        assert locked(tmp_path) == [f"gpu{FIRST}.lock", f"gpu{SECOND}.lock"]


def test_instances_of_a_gpu_are_claimed_one_by_one(driver: Path, tmp_path: Path) -> None:
    smi(
        driver,
        "GPU 0: A100 (UUID: GPU-1)\n  MIG 3g.20gb Device 0: (UUID: MIG-2)\n  MIG 3g.20gb Device 1: (UUID: MIG-3)",
    )
    assert visible_devices() == ["MIG-2", "MIG-3"]
    with claimed_devices(1, folder=tmp_path):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-2"
        assert locked(tmp_path) == ["gpuMIG-2.lock"]
    with pytest.raises(UserError, match=r"MIG instances \(MIG-2, MIG-3\) cannot train one run together"):
        claimed_devices(2, folder=tmp_path).__enter__()


def test_a_driver_that_cannot_be_asked_leaves_what_nvidia_smi_lists(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(driver, "GPU 0: A100 (UUID: GPU-1)\nGPU 1: A100 (UUID: GPU-2)")
    monkeypatch.delenv("FAKE_GPUS")
    with claimed_devices(1, folder=tmp_path) as names:
        assert list(names) == ["0"]
        assert locked(tmp_path) == ["gpu0.lock"]


@pytest.mark.parametrize("visible", ["", "-1"])
@pytest.mark.usefixtures("two_visible_devices")
def test_without_a_device_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with claimed_devices(1, folder=tmp_path) as names:
        assert list(names) == []
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible
    with pytest.raises(UserError, match=r"gpus: 2 asked for, but 0 visible"):  # not one process on the CPU
        claimed_devices(2, folder=tmp_path).__enter__()


@pytest.mark.usefixtures("two_visible_devices")
def test_more_devices_than_there_are_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gpus: 3 asked for, but 2 visible \(CUDA_VISIBLE_DEVICES=4,7\).*gpus=2"):
        claimed_devices(3, folder=tmp_path).__enter__()
