"""A training that was killed or stopped goes on as if nothing had happened."""

import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import CONTRAST, MEMORY, history_of, progress_of, scored, signalled_at, trained, work_of, write_run

from pne.engine import checkpoint
from pne.engine.state import deterministic_on_cpu, random_state, restore_random_state, seed_streams
from pne.files import sha256
from pne.results import write_result
from pne.train import main

CPU = torch.device("cpu")
ITERATIONS = 24


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """The run without interruption."""
    spec = write(tmp_path_factory.mktemp("whole"), data)
    assert main([str(spec)]) == 0
    return spec


def write(folder: Path, data: Path, **settings: Any) -> Path:
    fixed = {"contrast": CONTRAST | {"start": 2}, "checkpoint_interval": 1, "log_interval": 3}
    return write_run(folder, data, iterations=ITERATIONS, **fixed | settings)


def same_outcome(spec: Path, whole: Path, resumes: int) -> None:
    one, other = trained(spec), trained(whole)
    assert one.resumes == resumes
    assert one.weights_sha256 == other.weights_sha256 == sha256(work_of(spec) / "final.pth")
    assert (one.losses, one.contrast) == (other.losses, other.contrast)
    assert scored(spec).class_iou == scored(whole).class_iou
    measured = {"time_s": 0, "data_s": 0}
    assert [line | measured for line in history_of(spec)] == [line | measured for line in history_of(whole)]


@pytest.mark.parametrize(("iterations", "runtime"), [((2, 9), {}), ((13,), {"workers": 2, "checkpoint_interval": 13})])
def test_killed_at_any_iteration_it_ends_with_the_same_bits(
    tmp_path: Path, data: Path, whole: Path, iterations: tuple[int, ...], runtime: dict[str, int]
) -> None:
    spec = write(tmp_path, data, **runtime)
    for iteration in iterations:
        assert signalled_at(spec, signal.SIGKILL, iteration)[0] == -signal.SIGKILL
        assert not (spec.parent / "train.json").exists()
    assert main([str(spec)]) == 0
    same_outcome(spec, whole, resumes=len(iterations))


@pytest.mark.parametrize(("signum", "status", "workers"), [(signal.SIGTERM, 75, 2), (signal.SIGINT, 130, 0)])
def test_asked_to_stop_it_writes_a_checkpoint_and_says_so(
    tmp_path: Path, data: Path, whole: Path, signum: signal.Signals, status: int, workers: int
) -> None:
    spec = write(tmp_path, data, checkpoint_interval=4, workers=workers)
    ended, told = signalled_at(spec, signum, 4)
    assert ended == status
    assert f"interrupted by {signum.name}" in told
    assert "Traceback" not in told
    assert progress_of(spec)["state"] == "interrupted"
    assert 4 <= checkpoint.iterations(work_of(spec))[0] < ITERATIONS
    assert main([str(spec)]) == 0
    same_outcome(spec, whole, resumes=1)


def test_a_truncated_checkpoint_is_passed_over(
    tmp_path: Path, data: Path, whole: Path, capsys: pytest.CaptureFixture
) -> None:
    spec = write(tmp_path, data, checkpoint_interval=4)
    signalled_at(spec, signal.SIGKILL, 8)
    newest = checkpoint.path_of(work_of(spec), checkpoint.iterations(work_of(spec))[0])
    newest.write_bytes(newest.read_bytes()[:-5000])
    assert main([str(spec)]) == 0
    told = capsys.readouterr()
    assert f"warning: {newest}: not a whole checkpoint" in told.err
    assert "resumed at iteration" in told.out
    same_outcome(spec, whole, resumes=1)


def test_the_memory_of_a_loss_is_restored(tmp_path: Path, data: Path) -> None:
    through = write(tmp_path / "through", data, contrast=MEMORY, checkpoint_interval=50)
    assert main([str(through)]) == 0
    spec = write(tmp_path / "cut", data, contrast=MEMORY)
    signalled_at(spec, signal.SIGKILL, 10)
    assert main([str(spec)]) == 0
    same_outcome(spec, through, resumes=1)
    names = checkpoint.load(work_of(spec) / "final.pth")["state_dict"]
    assert any(".contrast.projection" in name for name in names)
    assert not any(".contrast.loss." in name for name in names)  # a memory serves training alone


def test_an_interrupted_retraining_goes_on_and_replaces_results_last(tmp_path: Path, data: Path, whole: Path) -> None:
    spec = write(tmp_path, data)
    assert main([str(spec)]) == 0
    first, files = trained(spec), sorted(path.name for path in spec.parent.iterdir())
    outdated = {"evaluation": "multi_scale_flip", "weights_sha256": "of an earlier training"}
    write_result(spec.parent / "multi_scale_flip.json", scored(spec).model_copy(update=outdated))
    assert signalled_at(spec, signal.SIGTERM, 5, "--retrain")[0] == 75
    assert trained(spec) == first
    assert main([str(spec)]) == 0  # without --retrain, the finished results stand
    assert trained(spec) == first
    assert main(["--retrain", str(spec)]) == 0
    same_outcome(spec, whole, resumes=1)
    assert trained(spec).provenance.started >= first.provenance.ended
    assert sorted(path.name for path in spec.parent.iterdir()) == files  # the outdated evaluation is gone
    assert not (work_of(spec) / "retrain").exists()


def draw() -> tuple:
    numbers = np.random.rand(3).tolist(), np.random.randn(1).tolist()  # noqa: NPY002
    return random.random(), random.gauss(0, 1), *numbers, torch.rand(3).tolist(), torch.randn(1).tolist()


def test_seed_and_rank_make_the_streams_which_go_on_after_a_checkpoint(tmp_path: Path) -> None:
    seed_streams(5, 0)
    draw()  # leaves half of a Gaussian pair waiting in two of the streams
    checkpoint.save(tmp_path / "iter_1.pth", random_state(CPU))
    expected = [draw() for _ in range(3)]
    seed_streams(6, 0)
    restore_random_state(checkpoint.load(tmp_path / "iter_1.pth"), CPU)
    assert [draw() for _ in range(3)] == expected

    drawn = []
    for seed, rank in ((0, 0), (0, 1), (1, 0), (0, 0)):
        seed_streams(seed, rank)
        drawn.append(draw())
    assert drawn[0] == drawn[3]
    assert len({numbers[0] for numbers in drawn}) == 3


def test_determinism_ends_with_the_block() -> None:
    with deterministic_on_cpu(CPU):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
