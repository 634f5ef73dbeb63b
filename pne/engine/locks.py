"""One process per work directory and GPU: locks that the operating system releases when the process ends.

Imports no torch: the claim of a GPU comes before CUDA starts, because it is made by setting CUDA_VISIBLE_DEVICES.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from pne.console import utc_now
from pne.errors import UserError
from pne.files import discard_asides, write_text

VISIBLE = "CUDA_VISIBLE_DEVICES"
JOB_VARIABLES = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "JOB_ID")
POLL_S = 1.0
ASK_CUDA = """
import ctypes
cuda, count, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    for index in range(count.value):
        uuid = ctypes.create_string_buffer(16)
        if cuda.cuDeviceGet(ctypes.byref(device), index) == 0 and cuda.cuDeviceGetUuid_v2(uuid, device) == 0:
            print(uuid.raw.hex())
"""
"""Prints a UUID for each device that CUDA gives to a process; asked in another one, since asking starts CUDA."""


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the lock of a work directory inside the block; ``lock.holder`` says who holds it.

    What a killed process was writing aside there is deleted.

    Raises
    ------
    UserError
        If another process holds it, with its host and process id, or the folder cannot be locked.
    """
    holder = directory / "lock.holder"
    lock = _locked(directory / "lock")
    if lock is None:
        raise UserError(
            f"{directory}: another process trains this run ({_name(holder)}); wait for it, or stop it, then try again; "
            f"if its machine is gone, delete {directory / 'lock'}"
        )
    try:
        discard_asides(directory)
        write_text(holder, json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": utc_now()}) + "\n")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _locked(path: Path) -> BaseFileLock | None:
    """Lock a file without waiting; None if another process holds it. A `UserError` where nothing can be locked."""
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except (OSError, NotImplementedError) as error:
        raise UserError(
            f"{path}: cannot be locked ({getattr(error, 'strerror', None) or error}); results, and TMPDIR on a machine "
            "with GPUs, need a folder that can be written on a file system with flock (Lustre: mount option flock)"
        ) from error
    return lock


def _name(holder: Path) -> str:
    try:
        who = json.loads(holder.read_text(encoding="utf-8"))
        return f"host {who['host']}, process {who['pid']}, since {who['since']}"
    except (OSError, ValueError, KeyError):
        return "its host and process id are not known yet"


def visible_devices() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES or else the driver lists them.

    Where GPUs are cut into MIG instances, these go by their UUIDs: without one, CUDA takes the first of them alone.
    """
    if (names := os.environ.get(VISIBLE)) is not None:
        return list(takewhile(lambda name: name not in ("", "-1"), map(str.strip, names.split(","))))
    listed = _printed("nvidia-smi", "--list-gpus")
    if instances := re.findall(r"UUID: (MIG-[^)]+)", listed):
        return instances
    return [str(index) for index in range(len(_uuids()) or len(re.findall(r"^GPU \d", listed, re.MULTILINE)))]


def _uuids() -> list[str]:
    """Identities of the devices that CUDA sees, in its order; none where its driver cannot be asked."""
    return _printed(sys.executable, "-c", ASK_CUDA).split()


def _printed(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


@contextmanager
def claimed_devices(
    count: int, *, folder: Path | None = None, report: Callable[[str], None] = print
) -> Iterator[Sequence[str]]:
    """Hold ``count`` GPUs that no other process has claimed, waiting until so many are free.

    Inside the block CUDA_VISIBLE_DEVICES names the claimed GPUs alone. Where there is no GPU the environment stays as
    it is.

    Parameters
    ----------
    count : int
        GPUs to hold; 0 claims none.
    folder : Path, optional
        Of the lock files. Default: one for each user and scheduler's job in the machine's temporary folder, which no
        two machines share.
    report : callable
        Gets a line of text when the process has to wait.

    Yields
    ------
    sequence of str
        The GPUs to use; empty where there is none.

    Raises
    ------
    UserError
        If fewer than ``count`` GPUs are visible, unless it is one that may be missing; or if they are parts of GPUs.
    """
    names = visible_devices()
    if count == 0 or (count == 1 and not names):
        yield []
        return
    if len(names) < count:
        raise UserError(
            f"gpus: {count} asked for, but {len(names)} visible ({VISIBLE}={','.join(names)}); "
            f"ask for fewer (--config gpus={max(1, len(names))}) or make more visible"
        )
    if count > 1 and names[0].startswith("MIG-"):
        raise UserError(f"gpus: {count} asked for, but MIG instances ({', '.join(names)}) cannot train a run together")
    folder = folder or default_folder()
    before = os.environ.get(VISIBLE)
    with ExitStack() as claims:
        uuids = [] if names[0].startswith("MIG-") else _uuids()  # steps of a job may call several devices 0
        known = dict(zip(names, uuids, strict=True)) if len(uuids) == len(names) else {}
        chosen = _claim({name: known.get(name, name) for name in names}, count, folder, claims, report)
        claims.callback(os.environ.update, {VISIBLE: before}) if before else claims.callback(os.environ.pop, VISIBLE)
        os.environ[VISIBLE] = ",".join(chosen)
        yield chosen


def default_folder() -> Path:
    """Folder of the lock files of this user and, inside a scheduler's job, of this job alone.

    Jobs of a scheduler such as SLURM see different GPUs that may bear the same number: only processes of one job
    compete.
    """
    jobs = [f"-job{os.environ[variable]}" for variable in JOB_VARIABLES if variable in os.environ]
    return Path(tempfile.gettempdir()) / f"pne-gpus-{os.getuid()}{''.join(jobs)}"


def _claim(
    names: Mapping[str, str], count: int, folder: Path, claims: ExitStack, report: Callable[[str], None]
) -> list[str]:
    """Lock ``count`` of the devices, all or none at a time, so that two processes cannot wait for each other.

    ``names`` maps the name of each to what it is, which is locked.
    """
    told = False
    while True:
        with ExitStack() as attempt:
            chosen = []
            for name, device in names.items():
                if (lock := _locked(folder / f"gpu{device.replace('/', '_')}.lock")) is None:
                    continue
                attempt.callback(lock.release)
                chosen.append(name)
                if len(chosen) == count:
                    claims.push(attempt.pop_all())
                    return chosen
        if not told:
            report(f"waiting for {count} free GPU{'s' * (count > 1)} of {', '.join(names)}")
            told = True
        time.sleep(POLL_S)
