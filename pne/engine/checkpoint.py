"""Checkpoint files: written aside and renamed, the two newest kept, a broken one passed over with a warning."""

import hashlib
import pickle
import random
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pne.console import warn
from pne.errors import UserError
from pne.files import written_aside

KEPT = 2
_NAME = re.compile(r"iter_(\d+)\.pth")


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain values to ``path`` atomically.

    Equal content gives equal bytes, whatever the name of the file, so that hashes of files can be compared.

    Raises
    ------
    UserError
        If the file cannot be written, such as on a full disk.
    """
    with written_aside(path) as aside:
        try:
            # A stream instead of a name: torch writes the name into the file.
            with aside.open("wb") as stream:
                torch.save(dict(content), stream)
        except RuntimeError as error:  # the writer reports a failed write of the stream so
            raise OSError(f"the checkpoint was not written whole: {_first_line(error)}") from error


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint to the CPU, executing no code of the file.

    Raises
    ------
    UserError
        If the file is missing, truncated, damaged or holds other objects than tensors and plain values.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"checksum of {damaged} differs")
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint") from None
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise UserError(f"{path}: not a whole checkpoint ({_first_line(error)}); delete it and start again") from error


def path_of(work: Path, iteration: int) -> Path:
    """File of the checkpoint after ``iteration`` iterations."""
    return work / f"iter_{iteration}.pth"


def checkpoints(work: Path) -> list[Path]:
    """Checkpoints in a work directory, newest (most iterations) first."""
    found = [(int(match[1]), path) for path in work.glob("iter_*.pth") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def load_newest(work: Path) -> dict[str, Any] | None:
    """Read the newest whole checkpoint, None without one; a broken one is named in a warning and passed over."""
    for path in checkpoints(work):
        try:
            return load(path)
        except UserError as error:
            warn(f"{error}; using the checkpoint before it")
    return None


def prune(work: Path, kept: int = KEPT) -> None:
    """Delete all but the ``kept`` newest checkpoints."""
    for path in checkpoints(work)[kept:]:
        path.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]


# Random states of Python, NumPy and torch: seeding, saving as tensors and plain numbers, restoring, determinism.


def seed_streams(seed: int, rank: int) -> None:
    """Start every global random stream of this process anew.

    Called between building the model and the first iteration, so that the streams of training do not depend on how many
    numbers the initialisation drew. Processes differ by ``rank``.
    """
    mixed = int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
    random.seed(mixed)
    np.random.seed(mixed)  # noqa: NPY002 -- the transforms of mmcv and mmseg draw from the global stream
    torch.manual_seed(mixed)


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the states of all global random streams as tensors and plain numbers (safe to load with weights only)."""
    kind, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    state = {
        "python": {"version": kind, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
        "numpy": {
            "name": str(name),
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore what `random_state` returned; a CUDA state is left out where the run goes on without CUDA."""
    python, numpy_state = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    np.random.set_state(  # noqa: NPY002
        (
            numpy_state["name"],
            numpy_state["keys"].numpy().astype(np.uint32),
            numpy_state["position"],
            numpy_state["has_gauss"],
            numpy_state["cached"],
        )
    )
    torch.set_rng_state(state["torch"].cpu())
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)


@contextmanager
def deterministic_on_cpu(device: torch.device) -> Iterator[None]:
    """Use deterministic algorithms inside the block where that costs nothing: on the CPU.

    Operations without such an algorithm warn and go on. On CUDA nothing changes, since speed would suffer.
    """
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = fill
