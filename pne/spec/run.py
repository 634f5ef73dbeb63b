"""The description of one run: its identity, its environment, and the files ``spec.yaml`` and ``config.py``.

``spec.yaml`` says what a run is; ``config.py`` beside it is the whole mmengine config, tied to it by a hash. Both are
written before training by ``python -m pne.spec write`` and read by training, evaluation and analysis. Free of torch.
"""

import ast
import pprint
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from mmengine.config import Config
from pydantic import Field

from pne.errors import UserError
from pne.files import write_text
from pne.spec.identity import SPEC_VERSION, canonical, digest
from pne.spec.reading import read_model
from pne.spec.schema import EvaluationName, Machine, Precision, Strict

CONFIG_FILE = "config.py"
SPEC_FILE = "spec.yaml"


class Runtime(Machine):
    """Where and how one run is executed."""

    results: str = Field(description="Results folder of the track.")
    save_work: bool = Field(default=True, description="Keep final weights; without them evaluation ends with training.")
    source: Literal["archive"] | None = Field(default=None, exclude=True, description="Read results from there alone.")

    @property
    def claimed_gpus(self) -> int:
        """GPUs that a job has to ask for: none for runs that shall use the CPU."""
        return 0 if self.device == "cpu" else self.gpus

    @property
    def cores(self) -> int:
        """Processor cores: per process its threads and its data loading workers."""
        return (self.threads + self.workers) * max(1, self.claimed_gpus)


class Run(Strict):
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
    contrast: dict[str, Any] | None = Field(description="loss, other than default options, weight, start, projection.")
    seed: int = Field(ge=0)
    precision: Precision
    iterations: int = Field(ge=1)
    batch_size: int = Field(ge=1, description="Images per optimiser step, over all processes.")
    config_sha256: str = Field(description="Hash of the canonical config (pne.spec.identity).")
    modules: list[str] = Field(default=[], description="Of the package, whose classes the config names by path.")
    evaluations: list[EvaluationName] = Field(description="Evaluations that tables ask for; not hashed.")
    runtime: Runtime

    @property
    def identity_sha256(self) -> str:
        """Digest of config, seed and precision; its first eight digits name the run."""
        return _identity(self.config_sha256, self.seed, self.precision)

    @property
    def archived(self) -> bool:
        """Whether its results are read from the archive alone, which holds neither weights nor features."""
        return self.runtime.source == "archive"

    @property
    def directory(self) -> Path:
        """Folder of spec, results and log; of a run that is read from the archive, its entry there."""
        results = Path(self.runtime.results)
        return results.parent / "archive" / results.name / self.run if self.archived else results / "runs" / self.run

    @property
    def work_directory(self) -> Path:
        """Folder of checkpoints and final weights; the archive has none."""
        return self.directory if self.archived else Path(self.runtime.results) / "work" / self.run

    @property
    def data_directory(self) -> Path:
        """Folder of the data set."""
        return Path(self.runtime.data_root) / self.folder


def identify(config: Mapping[str, Any], seed: int, precision: str) -> tuple[str, str]:
    """Return the hash of a config and the eight digits that name the run."""
    config_sha256 = digest(canonical(config))
    return config_sha256, _identity(config_sha256, seed, precision)[:8]


def _identity(config_sha256: str, seed: int, precision: str) -> str:
    return digest({"spec_version": SPEC_VERSION, "config": config_sha256, "seed": seed, "precision": precision})


def write_spec(run: Run, config: Mapping[str, Any]) -> Path:
    """Write ``config.py`` and ``spec.yaml`` of a run, atomically and only where their content changes.

    Parameters
    ----------
    run : Run
    config : Config or dict
        The whole config of the run, as `pne.spec.ResolvedTrack.config` returns it.

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
    entries = [f"{key} = {pprint.pformat(value, width=116, sort_dicts=False)}" for key, value in plain.items()]
    lines = [f"# Config of the run {run.run}; written from the declarations, see spec.yaml.", *entries, ""]
    _write_if_changed(run.directory / CONFIG_FILE, "\n".join(lines))
    text = yaml.safe_dump(run.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
    return _write_if_changed(run.directory / SPEC_FILE, text)


def _write_if_changed(path: Path, text: str) -> Path:
    if not (path.is_file() and path.read_bytes() == text.encode()):
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
        If the file is missing, no YAML, no run's description, or not that of the run that it names.
    """
    path = Path(path)
    run = read_model(path, Run)
    if run.spec_version != SPEC_VERSION:
        raise UserError(
            f"{path}: spec_version: expected {SPEC_VERSION}, got {run.spec_version}; it was written by another version "
            f"of this project: use that one, or write specs anew with python -m pne.spec write"
        )
    _, dash, digits = run.run.rpartition("-")
    expected = run.identity_sha256[:8]
    if dash and len(digits) == 8 and digits != expected:
        raise UserError(
            f"{path}: config, seed and precision are those of a run that ends in {expected}, not of {run.run}: it was "
            f"edited by hand; write it anew: python -m pne.spec write --track {run.track} --run {run.run}"
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
    plain = _read_literals(config_path)
    _check_hash(run, plain, str(config_path))
    return Config(plain, filename=str(config_path))


def _read_literals(path: Path) -> dict[str, Any]:
    """Read ``key = literal`` lines. Results are data that may come from anywhere: nothing of them is executed."""
    line = 0
    try:
        found = {}
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            line = statement.lineno
            if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
                raise ValueError(f"{ast.unparse(statement)[:60]!r} is no assignment")
            found[statement.targets[0].id] = ast.literal_eval(statement.value)
        return found
    except (SyntaxError, ValueError) as error:
        raise UserError(
            f"{path}:{line}: expected keys with plain values, as python -m pne.spec write makes them: {error}"
        ) from error
