"""The description of one run: its identity, its environment, and the files ``spec.yaml`` and ``config.py``.

``spec.yaml`` says what a run is; ``config.py`` beside it is the whole mmengine config, tied to it by a hash. Both are
written before training by ``python -m pne.spec write`` and read by training, evaluation and analysis. Free of torch.
"""

import pprint
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from mmengine.config import Config
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pne.declaration.canonical import SPEC_VERSION, canonical, digest
from pne.declaration.reading import describe, raise_problems, read_yaml
from pne.declaration.schema import EvaluationName, Precision
from pne.declaration.stock import read_config as read_plain_config
from pne.errors import UserError
from pne.files import write_text

CONFIG_FILE = "config.py"
SPEC_FILE = "spec.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Runtime(_Strict):
    """Where and how a run is executed; nothing of it belongs to the run's identity."""

    data_root: str = Field(description="Folder that holds the data sets' folders.")
    weights_dir: str | None = Field(default=None, description="Folder with initial weights; null: by their URLs.")
    results: str = Field(description="Results folder of the track.")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: int = Field(default=1, ge=1, description="Training processes on CUDA devices; the global batch is split.")
    micro_batch: int | None = Field(
        default=None,
        ge=1,
        description="Most images per process and forward pass, gradients of an iteration are accumulated; null: all at "
        "once.",
    )
    workers: int = Field(default=2, ge=0, description="Loader processes per training process.")
    threads: int = Field(default=1, ge=1, description="CPU threads per training process.")
    checkpoint_interval: int = Field(gt=0, description="Iterations between checkpoints.")
    log_interval: int = Field(gt=0, description="Iterations between log lines.")
    cache_data: bool = Field(default=False, description="Keep decoded images in memory.")
    save_work: bool = Field(default=True, description="Keep final weights; without them evaluation ends with training.")


class Run(_Strict):
    """One training of (data set, model, contrast, schedule, precision, seed): what ``spec.yaml`` holds."""

    spec_version: int = SPEC_VERSION
    run: str = Field(description="Identifier: a readable part and eight hexadecimal digits of a hash.")
    track: str
    dataset: str = Field(description="The paper's name of the data set.")
    dataset_title: str = Field(description="The data that is really used.")
    layout: str = Field(description="Name of the on-disk layout that pne.datasets knows.")
    folder: str = Field(description="Folder of the data below data_root.")
    model: str
    schedule: str
    contrast: dict[str, Any] | None = Field(
        description="loss, options that differ from the class defaults, weight, start, projection; null: none."
    )
    seed: int = Field(ge=0)
    precision: Precision
    iterations: int = Field(ge=1)
    batch_size: int = Field(ge=1, description="Images per optimiser step, over all processes.")
    config_sha256: str = Field(description="Hash of the canonical config (pne.declaration.canonical).")
    evaluations: list[EvaluationName] = Field(description="Evaluations that tables ask for; not hashed.")
    runtime: Runtime

    @property
    def directory(self) -> Path:
        """Folder of spec, results and log."""
        return Path(self.runtime.results) / "runs" / self.run

    @property
    def work_directory(self) -> Path:
        """Folder of checkpoints and final weights."""
        return Path(self.runtime.results) / "work" / self.run

    @property
    def data_directory(self) -> Path:
        """Folder of the data set."""
        return Path(self.runtime.data_root) / self.folder


def identify(config: Mapping[str, Any], seed: int, precision: str) -> tuple[str, str]:
    """Return the hash of a config and the eight digits that name the run."""
    config_sha256 = digest(canonical(config))
    identity = {"spec_version": SPEC_VERSION, "config": config_sha256, "seed": seed, "precision": precision}
    return config_sha256, digest(identity)[:8]


def write_spec(run: Run, config: Mapping[str, Any]) -> Path:
    """Write ``config.py`` and ``spec.yaml`` of a run, atomically and only where their content changes.

    Parameters
    ----------
    run : Run
    config : Config or dict
        The whole config of the run, as `pne.resolve.ResolvedTrack.config` returns it.

    Returns
    -------
    Path
        The ``spec.yaml``.

    Raises
    ------
    UserError
        If the config is not the one that the run names, or the files cannot be written.
    """
    plain = config.to_dict() if isinstance(config, Config) else dict(config)
    _check_hash(run, plain, f"the config given for {run.run}")
    _write_if_changed(run.directory / CONFIG_FILE, _config_text(run, plain))
    text = yaml.safe_dump(run.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
    return _write_if_changed(run.directory / SPEC_FILE, text)


def _config_text(run: Run, config: Mapping[str, Any]) -> str:
    entries = [f"{key} = {pprint.pformat(value, width=116, sort_dicts=False)}" for key, value in config.items()]
    return "\n".join([f"# Config of the run {run.run}; written from the declarations, see spec.yaml.", *entries, ""])


def _write_if_changed(path: Path, text: str) -> Path:
    if not (path.is_file() and path.read_text(encoding="utf-8") == text):
        write_text(path, text)
    return path


def _check_hash(run: Run, config: Mapping[str, Any], where: str) -> None:
    found = digest(canonical(config))
    if found != run.config_sha256:
        raise UserError(
            f"{where}: hash {found[:12]} of the config, expected {run.config_sha256[:12]} as the spec says; "
            f"write both anew: python -m pne.spec write --track {run.track} --run {run.run}"
        )


def read_spec(path: Path | str) -> Run:
    """Read and check a ``spec.yaml``.

    Raises
    ------
    UserError
        If the file is missing, no YAML, or no run's description.
    """
    path = Path(path)
    data = read_yaml(path)
    try:
        run = Run.model_validate(data)
    except ValidationError as error:
        raise_problems([f"{path}: {problem}" for problem in describe(error, Run)])
        raise
    if run.spec_version != SPEC_VERSION:
        raise UserError(
            f"{path}: spec_version: expected {SPEC_VERSION}, got {run.spec_version}; it was written by another version "
            f"of this project: use that one, or write specs anew with python -m pne.spec write"
        )
    return run


def read_config(path: Path | str) -> Config:
    """Read the config that belongs to a ``spec.yaml``, verified against the spec's hash.

    Parameters
    ----------
    path : Path or str
        The ``spec.yaml``.

    Returns
    -------
    Config
        The whole mmengine config. Its ``custom_imports`` have not been imported.

    Raises
    ------
    UserError
        If spec or config cannot be read or do not belong together.
    """
    path = Path(path)
    run = read_spec(path)
    config_path = path.parent / CONFIG_FILE
    if not config_path.is_file():
        raise UserError(
            f"{config_path}: no such file; write it with python -m pne.spec write --track {run.track} --run {run.run}"
        )
    plain = read_plain_config(config_path)
    _check_hash(run, plain, str(config_path))
    return Config(plain, filename=str(config_path))


if __name__ == "__main__":
    from pne.declaration.command import main

    sys.exit(main())
