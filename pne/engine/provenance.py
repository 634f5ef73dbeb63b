"""Where a result comes from: commit, hash of the training-relevant code, versions, device. Imports no torch."""

import ast
import hashlib
import platform
import socket
import subprocess
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from pne.results import Provenance

if TYPE_CHECKING:
    import torch

PACKAGE = Path(__file__).resolve().parents[1]
TRAINING_CODE = ("losses", "heads", "datasets", "engine", "train.py", "options.py", "build.py")
PACKAGES = {
    "torch": ("torch",),
    "mmengine": ("onedl-mmengine", "mmengine"),
    "mmcv": ("onedl-mmcv", "mmcv", "mmcv-lite"),
    "mmseg": ("onedl-mmsegmentation", "mmsegmentation"),
    "numpy": ("numpy",),
}


@lru_cache
def code_sha256(package: Path = PACKAGE) -> str:
    """Hash the code that can change what a training gives.

    Parameters
    ----------
    package : Path
        Folder of the package. Counted are losses, heads, data sets, engine, the training command, the loss options and
        the config builder.

    Returns
    -------
    str
        64 hex digits. Comments, docstrings and layout do not count: the parsed code is hashed, not the text.
    """
    digest = hashlib.sha256()
    for entry in TRAINING_CODE:
        path = package / entry
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.is_file():
            digest.update(f"{file.relative_to(package).as_posix()}\n".encode())
            digest.update(_bare_code(file.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()


def _bare_code(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                node.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree)


@lru_cache
def git_state(folder: Path = PACKAGE) -> tuple[str | None, bool | None]:
    """Commit of the checkout and whether tracked files differ from it; (None, None) outside of git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


@lru_cache
def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that compute."""
    found = {"python": platform.python_version()}
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            try:
                found[name] = version(distribution)
                break
            except PackageNotFoundError:
                continue
    return found


def device_name(device: "torch.device") -> str:
    """Name of the hardware: ``NVIDIA H100 80GB HBM3`` or ``cpu: <model of the processor>``."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"cpu: {model}"


def utc_now() -> str:
    """Return the present time, ISO 8601, UTC, whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def describe(
    *, device: "torch.device", world_size: int, micro_batch: int, dataset_fingerprint: str, seed: int, started: str
) -> Provenance:
    """Collect the provenance of a result that is complete now."""
    commit, dirty = git_state()
    return Provenance(
        git_commit=commit,
        git_dirty=dirty,
        code_sha256=code_sha256(),
        versions=versions(),
        device=device_name(device),
        hostname=socket.gethostname(),
        world_size=world_size,
        micro_batch=micro_batch,
        dataset_fingerprint=dataset_fingerprint,
        seed=seed,
        started=started,
        ended=utc_now(),
    )
