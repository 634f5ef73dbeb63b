"""What a rehearsal is asked for and what it leaves: files under ``results/<track>/rehearsals``.

``<run>.json`` is the record of a rehearsal at the run's own size. Rehearsals with a smaller crop or batch say nothing
about the cost of the run; theirs lie in ``reduced/``.
"""

import json
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pne.errors import UserError
from pne.files import write_text
from pne.results import Provenance

NOT_EXAMINED = "not examined"
REQUEST = "request.json"
RECORD = "record.json"
GPU_SIZES_GIB = (8, 11, 16, 24, 32, 40, 48, 80, 96, 141)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Request(_Strict):
    """What is asked of a rehearsal beside its spec and config; one of equal request and code need not be repeated."""

    runs: list[str] = Field(min_length=1, description="Runs that it stands for, the rehearsed one first.")
    config_sha256: str = Field(description="Hash of the config that is rehearsed.")
    evaluations: list[str]
    images: int = Field(ge=1, description="Test images to score.")
    device: str = Field(description="As asked for: auto, cpu, cuda ...")
    gpus: int = Field(ge=1)
    workers: int = Field(ge=0)
    threads: int = Field(ge=1)
    micro_batch: int | None = Field(default=None, ge=1, description="Most images per forward pass.")
    initial_weights: Literal["random", "declared"]
    reduced: bool = Field(description="Whether crop or batch are not the run's own: no measure of its cost.")


class EvaluationCost(_Strict):
    """Cost of one way of scoring."""

    images: int = Field(ge=1)
    time_s: float = Field(gt=0, description="Seconds per image, start of the loader included.")
    peak_memory_mib: float = Field(ge=0)


class Rehearsal(_Strict):
    """``<run>.json``."""

    schema_version: Literal[1] = 1
    run: str = Field(description="The run that was rehearsed.")
    runs: list[str] = Field(min_length=1, description="The runs that it stands for, itself among them.")
    iterations: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    crop_size: tuple[int, int] = Field(description="(height, width) of the network's input.")
    time_s: float = Field(gt=0, description="Median seconds per iteration after warm-up, data loading included.")
    peak_memory_mib: float = Field(ge=0, description="Of training. CUDA: most memory allocated; CPU: resident set.")
    memory_kind: Literal["cuda_allocated", "resident_set"]
    losses: dict[str, float] = Field(description="Mean of each logged loss over the last 10 % of the iterations.")
    evaluations: dict[str, EvaluationCost]
    wall_s: float = Field(gt=0, description="Seconds of the whole rehearsal, without the start of the process.")
    request: Request
    provenance: Provenance

    @property
    def highest_memory_mib(self) -> float:
        """Most memory of training and evaluation."""
        return max([self.peak_memory_mib, *(cost.peak_memory_mib for cost in self.evaluations.values())])


Content = TypeVar("Content", bound=_Strict)


def memory_class(peak_mib: float) -> int | None:
    """Return the smallest usual size of a GPU, in GiB, that holds a peak of allocated memory; None if none does.

    A tenth is added for what the allocator cannot use, and half a GiB for the driver's context.

    >>> memory_class(6000), memory_class(9000), memory_class(200000)
    (8, 11, None)
    """
    needed = peak_mib / 1024 * 1.1 + 0.5
    return next((size for size in GPU_SIZES_GIB if size >= needed), None)


def record_path(results: Path | str, track: str, run: str, reduced: bool) -> Path:
    """Path of a record."""
    folder = Path(results) / track / "rehearsals"
    return (folder / "reduced" if reduced else folder) / f"{run}.json"


def write_content(path: Path, content: _Strict) -> None:
    """Write a request or a record, atomically."""
    write_text(path, content.model_dump_json(indent=1) + "\n")


def read_content(path: Path, kind: type[Content]) -> Content:
    """Read and check a request or a record.

    Raises
    ------
    UserError
        If the file is missing or does not hold what its kind promises.
    """
    try:
        return kind.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; rehearse the run: python -m pne.rehearse") from None
    except (ValueError, ValidationError) as error:
        first = str(error).splitlines()
        raise UserError(
            f"{path}: does not hold a {kind.__name__.lower()} ({' '.join(first[:3])}); delete it and rehearse again"
        ) from error
