"""Where a result comes from: code, versions, device, data, times. Imports no torch."""

import platform
import socket
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from pne.engine.code import Code, running_code
from pne.results import Provenance

if TYPE_CHECKING:
    import torch

PACKAGES = {
    "torch": ("torch",),
    "mmengine": ("onedl-mmengine", "mmengine"),
    "mmcv": ("onedl-mmcv", "mmcv", "mmcv-lite"),
    "mmseg": ("onedl-mmsegmentation", "mmsegmentation"),
    "numpy": ("numpy",),
}


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
    *,
    device: "torch.device",
    world_size: int,
    micro_batch: int,
    dataset_fingerprint: str,
    seed: int,
    started: str,
    code: Code | None = None,
) -> Provenance:
    """Collect the provenance of a result that is complete now; ``code`` is that of this process unless given."""
    code = running_code() if code is None else code
    return Provenance(
        git_commit=code.git_commit,
        git_dirty=code.git_dirty,
        code_sha256=code.sha256,
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
