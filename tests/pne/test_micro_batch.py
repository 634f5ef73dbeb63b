"""Where the size of a forward pass may be set: track, configuration of the workflow, command line."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import PNE, draw_images, signalled_at, write_run

from pne.engine import checkpoint
from pne.errors import UserError
from pne.results import TrainResult, read_result
from pne.spec import load_track
from pne.spec.catalogue import read_catalogue
from pne.train import main
from workflows.configuration import read_configuration, spec_options


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_images(tmp_path_factory.mktemp("data") / "camvid")


def micro_batch_of(spec: Path) -> int:
    return read_result(spec.parent / "train.json", TrainResult).provenance.micro_batch


def test_it_belongs_to_the_machine_and_names_no_run(repository: Path) -> None:
    declared = load_track("quick", experiments=repository / "experiments")
    cut = load_track("quick", experiments=repository / "experiments", runtime={"micro_batch": 2})
    assert list(cut.runs) == list(declared.runs)
    assert {run.runtime.micro_batch for run in declared.runs.values()} == {None}
    assert {run.runtime.micro_batch for run in cut.runs.values()} == {2}
    assert {run.config_sha256 for run in cut.runs.values()} == {run.config_sha256 for run in declared.runs.values()}


def test_a_track_may_declare_it(repository: Path) -> None:
    catalogue = read_catalogue(repository / "experiments")
    track = catalogue.tracks["quick"].model_copy(update={"micro_batch": 4})
    catalogue = replace(catalogue, tracks={**catalogue.tracks, "quick": track})
    found = load_track("quick", experiments=repository / "experiments", catalogue=catalogue)
    assert {run.runtime.micro_batch for run in found.runs.values()} == {4}


def test_nonsense_is_refused(repository: Path) -> None:
    with pytest.raises(UserError, match="runtime: micro_batch"):
        load_track("quick", experiments=repository / "experiments", runtime={"micro_batch": 0})
    with pytest.raises(UserError, match="--config micro_batch=0"):
        read_configuration({"micro_batch": 0})


def test_the_workflow_passes_it_to_the_description() -> None:
    configuration = read_configuration({"micro_batch": 2})
    assert configuration.track_arguments["runtime"] == {"micro_batch": 2}
    assert spec_options(configuration).endswith("--runtime micro_batch=2")


@pytest.mark.parametrize(("arguments", "expected"), [((), 2), (("--micro-batch", "1"), 1)])
def test_training_cuts_as_the_spec_says_unless_the_command_line_does(
    tmp_path: Path, data: Path, arguments: tuple[str, ...], expected: int
) -> None:
    spec = write_run(tmp_path, data, batch_size=4, iterations=2, micro_batch=2)
    assert main([*arguments, str(spec)]) == 0
    assert micro_batch_of(spec) == expected


def test_a_size_that_does_not_fit_is_told(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture) -> None:
    spec = write_run(tmp_path, data, batch_size=4, iterations=2, micro_batch=3)
    assert main([str(spec)]) == 2
    assert "micro_batch: 4 images of a process cannot be split into parts of 3" in capsys.readouterr().err


def test_a_resumed_run_may_be_cut_anew_and_keeps_the_start_of_its_contrast(tmp_path: Path, data: Path) -> None:
    contrast = {"loss": PNE, "weight": 1.3, "start": 10, "projection": {"channels": 8}}
    settings = {"batch_size": 4, "iterations": 40, "contrast": contrast, "log_interval": 1, "checkpoint_interval": 1}
    spec = write_run(tmp_path, data, **settings)
    work = spec.parents[2] / "work" / spec.parent.name
    assert signalled_at(work, signal.SIGTERM, 12, spec).returncode == 75
    assert main(["--micro-batch", "1", str(spec)]) == 0
    lines = [json.loads(line) for line in (spec.parent / "history.jsonl").read_text().splitlines()]
    assert len(lines) == 40
    active = [line["iter"] for line in lines if line["loss_contrast"] > 0]
    assert min(active) > 10
    # 12 passes are not yet 4 times the start: a term that counted them would sleep again until iteration 19.
    assert sum(iteration in range(13, 20) for iteration in active) >= 5
    calls = checkpoint.load(work / "final.pth")["state_dict"]["decode_head.contrast.calls"]
    assert calls == 160
