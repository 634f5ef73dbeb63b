"""What commands have in common: memory that does not suffice is told with what helps; torchrun has to wait."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from pne.engine import command
from pne.engine.command import OutOfMemoryFailure, RunFailure, launch, told_out_of_memory

DEVICE = "try less"
WORKER = "DataLoader worker (pid 7) is killed by signal: "
HOST = "try less, fewer loader processes (workers), or a job with more memory"
SHARED = "try workers=0 in --config, or a larger /dev/shm (docker run --shm-size=8g), which may be full"


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore words"), DEVICE),
        (RuntimeError("CUDA error: out of memory"), DEVICE),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), DEVICE),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), DEVICE),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), DEVICE),
        (RuntimeError("NCCL error: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"), DEVICE),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), HOST),
        (RuntimeError("std::bad_alloc"), HOST),
        (MemoryError(), HOST),
        (MemoryError("Unable to allocate 3.00 GiB for an array"), HOST),
        (OSError(12, "Cannot allocate memory"), HOST),
        (RuntimeError(f"{WORKER}Killed."), HOST),
        (RuntimeError(f"{WORKER}Bus error. Possibly out of shared memory."), SHARED),
        (RuntimeError("unable to allocate shared memory(shm) for file </torch_7>: No space left on device"), SHARED),
    ],
)
def test_memory_that_does_not_suffice_is_told_with_what_helps(error: Exception, advice: str) -> None:
    with pytest.raises(OutOfMemoryFailure) as caught, told_out_of_memory("with 4 images", "less"):
        raise error
    first = f"{type(error).__name__}: {error}".splitlines()[0]
    assert str(caught.value) == f"out of memory with 4 images; {advice} ({first})"


@pytest.mark.parametrize(
    "error", [RuntimeError("shape mismatch"), OSError(28, "No space left on device"), KeyError("a")]
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, told_out_of_memory("with 4 images", "less"):
        raise error
    assert caught.value is error


def test_the_place_next_to_the_error_advises() -> None:
    outer, inner = told_out_of_memory("in training", "a smaller batch"), told_out_of_memory("in predicting", "bfloat16")
    with pytest.raises(RunFailure, match=r"^out of memory in predicting; try bfloat16 "), outer, inner:
        raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.parametrize(("options", "expected"), [('"--shutdown-timeout",', ["--shutdown-timeout=600"]), ("", [])])
def test_torchrun_waits_for_checkpoints_where_it_can(
    options: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "distributed").mkdir()
    (tmp_path / "distributed/run.py").write_text(options)
    spec = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(command, "find_spec", {"torch": spec}.get)
    seen: list[str] = []
    monkeypatch.setattr(command, "run_process", lambda words, request: seen.extend(words) or 3)
    assert launch("pne.train", ["spec.yaml"], 2) == 3
    assert seen[3:] == ["--standalone", "--nproc_per_node=2", *expected, "-m", "pne.train", "spec.yaml"]
