"""What ``--config key=value ...`` of the workflow may say; a wrong key or value is one clear error, before any job."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pne.errors import UserError
from pne.results import TrainResult, read_result
from pne.spec import ResolvedTrack, Run
from pne.spec.reading import check_model, suggest
from pne.spec.schema import Strict


def _as_list(value: Any) -> Any:
    """Read ``0,1,2`` and a single value as a list; the command line delivers either."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_as_text), Field(min_length=1)]
Positive = Annotated[int, Field(ge=1)]


class Configuration(Strict):
    """The settings of one call of the workflow; where one is left out, the track's own holds.

    Attributes
    ----------
    track : str
        Name of ``experiments/tracks/<track>.yaml``.
    data_root, weights_dir : str, optional
        Folders of the data sets and of the ImageNet weights.
    source : {"archive"}, optional
        Print and draw from the results that are kept in git, training nothing.
    seeds : list of int, optional
        Such as ``0,1,2``.
    iterations : int, optional
        Of every run, for a try; makes other runs.
    subset : bool
        Take data sets that are incomplete or resized, for a try.
    device : {"auto", "cpu", "cuda"}, optional
    gpus, workers, threads : int, optional
        GPUs, data loading processes and threads of each run.
    micro_batch : int, optional
        Most images per process and forward pass, for want of memory; batch norm sees these.
    checkpoint_interval : int, optional
        Iterations between checkpoints.
    retrain : list of str
        ``stale``, or run ids: train these anew, keeping the old results until the new ones are whole.
    """

    track: Text = "quick"
    data_root: Text | None = None
    weights_dir: Text | None = None
    source: Literal["archive"] | None = None
    seeds: Annotated[list[int], BeforeValidator(_as_list), Field(min_length=1)] | None = None
    iterations: Positive | None = None
    subset: bool = False
    device: Literal["auto", "cpu", "cuda"] | None = None
    gpus: Positive | None = None
    micro_batch: Positive | None = None
    workers: Annotated[int, Field(ge=0)] | None = None
    threads: Positive | None = None
    checkpoint_interval: Positive | None = None
    retrain: Annotated[list[str], BeforeValidator(_as_list), Field(default_factory=list)]

    @property
    def runtime(self) -> dict[str, Any]:
        """Settings of the machine at hand that take the place of the track's; none of them changes a run's identity."""
        names = {"source", "device", "gpus", "micro_batch", "workers", "threads", "checkpoint_interval"}
        return self.model_dump(include=names, exclude_none=True)

    @property
    def track_arguments(self) -> dict[str, Any]:
        """Keyword arguments of `pne.spec.load_track`."""
        names = {"data_root", "weights_dir", "seeds", "iterations"}
        return self.model_dump(include=names) | {"runtime": self.runtime or None}


def read_configuration(values: Mapping[str, Any]) -> Configuration:
    """Check the values of ``--config``.

    Raises
    ------
    UserError
        On an unknown key or a value that does not fit, with the key, what came and what may stand there.
    """
    return check_model(Configuration, dict(values), "--config ")


def check_folders(track: ResolvedTrack) -> None:
    """Refuse folders that Snakemake would read as patterns.

    Raises
    ------
    UserError
        If a folder of data or weights, of the command line or the track, has braces in its name.
    """
    folders = [(run.runtime.data_root, run.folder, run.runtime.weights_dir) for run in track.runs.values()]
    for folder in sorted({str(folder) for each in folders for folder in each}):
        if set("{}") & set(folder):
            raise UserError(f"{folder}: braces stand for wildcards in a workflow; give a link without them instead")


def identity_options(configuration: Configuration) -> str:
    """Options that make every command resolve the same runs, quoted for the shell."""
    keys = ("track", "source", "data_root", "weights_dir", "iterations", "seeds")
    return _join({f"--{key.replace('_', '-')}": getattr(configuration, key) for key in keys})


def spec_options(configuration: Configuration) -> str:
    """Options that make ``python -m pne.spec write`` describe the same runs, quoted for the shell."""
    runtime = [f"{key}={value}" for key, value in configuration.runtime.items()]
    return f"{identity_options(configuration)} {_join({'--runtime': runtime})}".rstrip()


def _join(options: Mapping[str, Any]) -> str:
    words = []
    for option, value in options.items():
        if value:
            words += [option, *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


STALE = "stale"


def retrained_runs(asked: Sequence[str], runs: Mapping[str, Run], code_sha256: Callable[[Run], str]) -> frozenset[str]:
    """Choose the runs that ``--config retrain=...`` means.

    Parameters
    ----------
    asked : sequence of str
        Run ids, or ``stale`` for all runs whose results come from other training code.
    runs : mapping of str to Run
        All runs of the track.
    code_sha256 : callable
        Gives the hash of today's code that counts for a run.

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
    return frozenset(
        name
        for name, path in finished.items()
        if name in asked or (STALE in asked and not read_result(path, TrainResult).is_from(code_sha256(runs[name])))
    )
