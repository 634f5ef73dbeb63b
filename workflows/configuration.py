"""What ``--config key=value ...`` of the workflow may say; a wrong key or value is one clear error, before any job."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from pne.errors import UserError
from pne.results import TrainResult, read_result
from pne.spec import Run
from pne.spec.reading import suggest


def _as_list(value: Any) -> Any:
    """Read ``0,1,2`` and a single value as a list; the command line delivers either."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_as_text), Field(min_length=1)]


class Configuration(BaseModel):
    """The settings of one call of the workflow."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    track: Text = Field(default="quick", description="name of experiments/tracks/<track>.yaml")
    data_root: Text | None = Field(default=None, description="folder of the data sets (default: the track's)")
    weights_dir: Text | None = Field(default=None, description="folder of the ImageNet weights (default: the track's)")
    seeds: Annotated[list[int], BeforeValidator(_as_list), Field(min_length=1)] | None = Field(
        default=None, description="such as 0,1,2 (default: the track's)"
    )
    iterations: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="iterations of every run, for a try (default: the schedules'); makes other runs"
    )
    subset: bool = Field(default=False, description="true: take data sets that are incomplete or resized, for a try")
    device: Literal["auto", "cpu", "cuda"] | None = Field(default=None, description="auto, cpu or cuda")
    gpus: Annotated[int, Field(ge=1)] | None = Field(default=None, description="GPUs of each run")
    micro_batch: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="most images per process and forward pass, for want of memory; batch norm sees these"
    )
    workers: Annotated[int, Field(ge=0)] | None = Field(default=None, description="data loading processes of each run")
    threads: Annotated[int, Field(ge=1)] | None = Field(default=None, description="threads of each run")
    checkpoint_interval: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="iterations between checkpoints"
    )
    retrain: Annotated[list[str], BeforeValidator(_as_list)] = Field(
        default=[],
        description="stale, or run ids: train these anew, keeping the old results until the new ones are whole",
    )

    @model_validator(mode="after")
    def _retrains_once(self) -> "Configuration":
        if len(set(self.retrain)) != len(self.retrain):
            raise ValueError("retrain: a run is named twice; name it once")
        return self

    @property
    def runtime(self) -> dict[str, Any]:
        """Settings of the machine at hand that take the place of the track's; none of them changes a run's identity."""
        keys = ("device", "gpus", "micro_batch", "workers", "threads", "checkpoint_interval")
        return {key: value for key in keys if (value := getattr(self, key)) is not None}

    @property
    def track_arguments(self) -> dict[str, Any]:
        """Keyword arguments of `pne.spec.load_track`."""
        return {
            "data_root": self.data_root and Path(self.data_root),
            "weights_dir": self.weights_dir and Path(self.weights_dir),
            "seeds": self.seeds,
            "iterations": self.iterations,
            "runtime": self.runtime or None,
        }


def read_configuration(values: Mapping[str, Any]) -> Configuration:
    """Check the values of ``--config``.

    Raises
    ------
    UserError
        On an unknown key or a value that does not fit, with the key, what came and what may stand there.
    """
    problems = [
        f"--config {key}={value}: no such key; {suggest(key, Configuration.model_fields)}"
        for key, value in values.items()
        if key not in Configuration.model_fields
    ]
    if problems:
        raise UserError("\n".join(problems))
    try:
        return Configuration.model_validate(dict(values))
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            key = str(problem["loc"][0]) if problem["loc"] else ""
            field = Configuration.model_fields.get(key)
            expected = f"; {key} is {field.description}" if field else ""
            lines.append(f"--config {key}={values.get(key)}: {problem['msg']}{expected}")
        raise UserError("\n".join(lines)) from None


def identity_options(configuration: Configuration) -> str:
    """Options that make the commands of `analysis` resolve the same runs, quoted for the shell."""
    seeds = configuration.seeds and ",".join(map(str, configuration.seeds))
    return _join({**_identity(configuration), "--seeds": seeds})


def spec_options(configuration: Configuration) -> str:
    """Options that make ``python -m pne.spec write`` describe the same runs, quoted for the shell."""
    runtime = [f"{key}={value}" for key, value in configuration.runtime.items()]
    return _join({**_identity(configuration), "--seeds": configuration.seeds, "--runtime": runtime})


def _identity(configuration: Configuration) -> dict[str, Any]:
    keys = ("track", "data_root", "weights_dir", "iterations")
    return {f"--{key.replace('_', '-')}": getattr(configuration, key) for key in keys}


def _join(options: Mapping[str, Any]) -> str:
    words = []
    for option, value in options.items():
        if value:
            words += [option, *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


# Which finished runs are to be trained anew.


STALE = "stale"


def retrained_runs(asked: Sequence[str], runs: Mapping[str, Run], code_sha256: str) -> frozenset[str]:
    """Choose the runs that ``--config retrain=...`` means.

    Parameters
    ----------
    asked : sequence of str
        Run ids, or ``stale`` for all runs whose results come from other training code.
    runs : mapping of str to Run
        All runs of the track.
    code_sha256 : str
        Hash of today's training code.

    Returns
    -------
    frozenset of str
        Finished runs alone: a run without results is trained anyway.

    Raises
    ------
    UserError
        If a name is no run of the track, or the results of a finished run cannot be read.
    """
    for name in asked:
        if name != STALE and name not in runs:
            raise UserError(f"--config retrain={name}: no such run; {suggest(name, [STALE, *runs])}")
    finished = {name: path for name, run in runs.items() if (path := run.directory / "train.json").exists()}
    chosen = {name for name in asked if name in finished}
    if STALE in asked:
        for name, path in finished.items():
            if not read_result(path, TrainResult).is_from(code_sha256):
                chosen.add(name)
    return frozenset(chosen)
