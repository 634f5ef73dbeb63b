"""Checkpoint files, one a process: written aside and renamed, whole or not taken; the two newest checkpoints kept."""

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pne.errors import UserError
from pne.files import written_aside

KEPT = 2
_NAME = re.compile(r"iter_(?P<iteration>\d+)(?P<rank>\.rank\d+)?\.pth")


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


def path_of(work: Path, iteration: int, rank: int = 0) -> Path:
    """File of a process in the checkpoint after ``iteration`` iterations; that of the first one holds the model."""
    return work / (f"iter_{iteration}.rank{rank}.pth" if rank else f"iter_{iteration}.pth")


def iterations(work: Path) -> list[int]:
    """Iterations after which the first process has written a checkpoint, the newest first."""
    return sorted((int(match["iteration"]) for _, match in _files(work) if not match["rank"]), reverse=True)


def prune(work: Path, kept: int = KEPT) -> None:
    """Delete all but the ``kept`` newest checkpoints."""
    stay = iterations(work)[:kept]
    for path, match in _files(work):
        if int(match["iteration"]) not in stay:
            path.unlink(missing_ok=True)


def _files(work: Path) -> list[tuple[Path, re.Match[str]]]:
    return [(path, match) for path in work.glob("iter_*.pth") if (match := _NAME.fullmatch(path.name))]


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
