"""GPUs, cores, memory and time that a run asks for, from ``workflows/resources.yaml`` and the run's own description."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pne.declaration.reading import read_yaml
from pne.errors import UserError
from pne.spec import Run


class TrackResources(BaseModel):
    """Needs of the runs of one track."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory_mb: int = Field(gt=0)
    overhead_minutes: int = Field(ge=1)
    seconds_per_iteration: dict[str, Annotated[float, Field(gt=0)]]


@dataclass(frozen=True)
class ResourceTable:
    """Needs of the runs of every track."""

    path: Path
    tracks: dict[str, TrackResources]

    @classmethod
    def read(cls, path: Path) -> "ResourceTable":
        """Read and check the file.

        Raises
        ------
        UserError
            If a key is missing, unknown or no positive number.
        """
        tracks = {}
        for name, values in read_yaml(path).items():
            try:
                tracks[name] = TrackResources.model_validate(values)
            except ValidationError as error:
                first = error.errors()[0]
                key = ".".join(map(str, (name, *first["loc"])))
                raise UserError(f"{path}: {key}: {first['msg']}") from None
            if "default" not in tracks[name].seconds_per_iteration:
                raise UserError(f"{path}: {name}.seconds_per_iteration: no default; add one for models not named")
        return cls(path, tracks)

    def of(self, run: Run) -> TrackResources:
        """Needs of one run's track.

        Raises
        ------
        UserError
            If the file has no entry for the track.
        """
        if run.track not in self.tracks:
            raise UserError(f"{self.path}: no entry for track {run.track}; add one like {next(iter(self.tracks))}")
        return self.tracks[run.track]

    def gpus(self, run: Run) -> int:
        """GPUs: none for runs that shall use the CPU."""
        return 0 if run.runtime.device == "cpu" else run.runtime.gpus

    def cores(self, run: Run) -> int:
        """Processor cores: per process its threads and its data loading workers."""
        return (run.runtime.threads + run.runtime.workers) * max(1, self.gpus(run))

    def memory_mb(self, run: Run, attempt: int = 1) -> int:
        """Host memory in MB; another attempt asks for half as much again."""
        return round(self.of(run).memory_mb * max(1, self.gpus(run)) * (1 + attempt) / 2)

    def minutes(self, run: Run, attempt: int = 1) -> int:
        """Time limit in minutes; every attempt asks for as much again."""
        needs = self.of(run)
        seconds = needs.seconds_per_iteration.get(run.model, needs.seconds_per_iteration["default"])
        return math.ceil(needs.overhead_minutes + run.iterations * seconds / 60) * attempt
