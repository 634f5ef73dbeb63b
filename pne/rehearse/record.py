"""What a rehearsal is asked for and what it leaves: files under ``results/<track>/rehearsals``.

``<run>.json`` is the record of a rehearsal at the run's own size. Rehearsals with a smaller crop or batch say nothing
about the cost of the run; theirs lie in ``reduced/``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from pne.errors import UserError
from pne.files import write_text
from pne.results import EvaluationResult, TrainResult
from pne.spec import ResolvedTrack, Run
from pne.spec.identity import canonical, digest

GPU_SIZES_GIB = (8, 11, 16, 24, 32, 40, 48, 80, 96, 141)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Request(_Strict):
    """What is asked of a rehearsal; one of equal request and code need not be repeated."""

    runs: list[str] = Field(min_length=1, description="Runs that it stands for, the rehearsed one first.")
    config_sha256: str = Field(description="Hash of the config of the rehearsed run.")
    evaluations: list[str]
    iterations: int = Field(ge=1)
    images: int = Field(ge=1, description="Test images to score.")
    crop: int | None = Field(default=None, ge=1, description="Shorter side of the crop, if not the run's own.")
    batch_size: int | None = Field(default=None, ge=1, description="Images per step, if not the run's own.")
    device: str = Field(description="As asked for: auto, cpu, cuda ...")
    gpus: int = Field(ge=1)
    workers: int = Field(ge=0)
    threads: int = Field(ge=1)
    micro_batch: int | None = Field(default=None, ge=1, description="Most images per forward pass.")
    initial_weights: Literal["random", "declared"]

    @property
    def reduced(self) -> bool:
        """Whether crop or batch are not the run's own: no measure of its cost."""
        return self.crop is not None or self.batch_size is not None


class Rehearsal(_Strict):
    """``<run>.json``: what was asked for, and the results that the shortened training published."""

    schema_version: Literal[2] = 2
    request: Request
    trained: TrainResult
    evaluations: dict[str, EvaluationResult]

    @property
    def highest_memory_mib(self) -> float:
        """Most memory of training and evaluation."""
        scored = (result.peak_memory_mib or 0.0 for result in self.evaluations.values())
        return max([self.trained.peak_memory_mib, *scored])

    def hours(self, runs: Mapping[str, Run]) -> float:
        """Device hours of training, without evaluation, of all of ``runs`` that it stands for."""
        iterations = sum(runs[run].iterations for run in self.request.runs if run in runs)
        return iterations * self.trained.time_s * self.trained.provenance.world_size / 3600


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


def write_rehearsal(path: Path, content: Rehearsal) -> None:
    """Write a record, atomically."""
    write_text(path, content.model_dump_json(indent=1) + "\n")


def read_rehearsal(path: Path) -> Rehearsal:
    """Read and check a record.

    Raises
    ------
    UserError
        If the file is missing or does not hold a record.
    """
    try:
        return Rehearsal.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; rehearse the run: python -m pne.rehearse") from None
    except ValueError as error:
        first = " ".join(str(error).splitlines()[:3])
        raise UserError(f"{path}: does not hold a rehearsal ({first}); delete it and rehearse again") from error


@dataclass(frozen=True)
class Group:
    """Runs that are rehearsed once.

    Attributes
    ----------
    run : Run
        The one that is rehearsed: the first of the track.
    stands_for : tuple of str
        Identifiers of all of them, the rehearsed one first.
    evaluations : tuple of str
        What any of them is scored with.
    """

    run: Run
    stands_for: tuple[str, ...]
    evaluations: tuple[str, ...]


def group_runs(track: ResolvedTrack) -> list[Group]:
    """Group the runs of a track: equal but for the contrast's weight, its temperature and the seed.

    Parameters
    ----------
    track : ResolvedTrack

    Returns
    -------
    list of Group
        In the order of the track; every run is in exactly one group.
    """
    members: dict[str, list[Run]] = {}
    for name, run in track.runs.items():
        members.setdefault(f"{run.precision} {cost_key(track.config(name).to_dict())}", []).append(run)
    return [
        Group(
            run=runs[0],
            stands_for=tuple(run.run for run in runs),
            evaluations=tuple(dict.fromkeys(name for run in runs for name in run.evaluations)),
        )
        for runs in members.values()
    ]


def cost_key(config: Mapping[str, Any]) -> str:
    """Hash a config without what changes no cost."""
    plain = canonical(config)
    plain.pop("randomness", None)
    plain["train_dataloader"].get("sampler", {}).pop("seed", None)
    for contrast in contrasts(plain["model"]):
        for key in ("weight", "seed"):
            contrast.pop(key, None)
        contrast["loss"].pop("temperature", None)
    return digest(plain)


def contrasts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the settings of every contrast branch in the config of a model."""
    if isinstance(value, Mapping):
        if value.get("type") == "ContrastHead":
            yield value["contrast"]
        for item in value.values():
            yield from contrasts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from contrasts(item)


def summarise(records: Sequence[Rehearsal], runs: Mapping[str, Run], failures: Mapping[str, str]) -> str:
    """Write the table of the records, then totals and failures.

    Parameters
    ----------
    records : sequence of Rehearsal
    runs : mapping of str to Run
        The track's runs, for their lengths; runs that a record names and that are not here are not counted.
    failures : mapping of str to str
        Rehearsed run -> why it failed.
    """
    failed = [f"FAILED {run}: {why}" for run, why in failures.items()]
    if not records:
        return "\n".join(failed)
    table = pd.DataFrame([_row(record, runs) for record in records]).to_string(index=False)
    return "\n".join([table, "", *_totals(records, runs), *failed])


def _row(record: Rehearsal, runs: Mapping[str, Run]) -> dict[str, str]:
    scored = {name: result.time_s / result.images for name, result in record.evaluations.items()}
    return {
        "rehearsed run": record.request.runs[0],
        "stands for": str(sum(run in runs for run in record.request.runs)),
        "s/iter": f"{record.trained.time_s:.3g}",
        "GiB": f"{record.highest_memory_mib / 1024:.2f}",
        "s/image ss": f"{scored['single_scale']:.3g}" if "single_scale" in scored else "-",
        "s/image ms": f"{scored['multi_scale_flip']:.3g}" if "multi_scale_flip" in scored else "-",
        "hours": "-" if record.request.reduced else f"{record.hours(runs):.1f}",
    }


def _totals(records: Sequence[Rehearsal], runs: Mapping[str, Run]) -> Iterator[str]:
    whole = [record for record in records if not record.request.reduced]
    if len(whole) < len(records):
        yield "Crop or batch were reduced: seconds and memory show that the runs work, not what they cost."
    if whole:
        where = " or ".join(sorted({record.trained.provenance.device for record in whole}))
        stood_for = sum(run in runs for record in whole for run in record.request.runs)
        total = sum(record.hours(runs) for record in whole)
        yield f"{total:.0f} device hours of training for {stood_for} runs on {where}, without evaluation."
    on_gpu = [record.highest_memory_mib for record in whole if record.trained.memory_kind == "cuda_allocated"]
    if on_gpu:
        size, peak = memory_class(max(on_gpu)), f"{max(on_gpu) / 1024:.1f} GiB at most"
        if size:
            yield f"A GPU with {size} GiB of memory suffices ({peak})."
        else:
            yield f"No usual GPU suffices ({peak}): use several (--gpus 2) or --micro-batch."
