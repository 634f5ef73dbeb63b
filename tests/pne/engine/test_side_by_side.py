"""Runs side by side: one parent that imports, a child for each run; weights, statuses and words as of runs alone."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from tiny_runs import CONTRAST, Training, final_state, progress_of, scored, trained, work_of, write_run

from pne.engine import checkpoint
from pne.train import main


def equal(first: Path, second: Path) -> bool:
    one, other = final_state(first), final_state(second)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def write_runs(folder: Path, data: Path, iterations: int) -> dict[str, Path]:
    asked = ("single_scale", "multi_scale_flip")
    settings = {"iterations": iterations, "evaluations": asked, "log_interval": iterations}
    contrasts = {"base": None, "pne": CONTRAST}
    return {name: write_run(folder, data, name, contrast=contrast, **settings) for name, contrast in contrasts.items()}


def test_each_run_ends_as_it_would_alone(
    finished: Mapping[str, Path], data: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    specs = write_runs(tmp_path, data, 12)
    broken = write_run(tmp_path, tmp_path / "nowhere", "broken")
    status, told = Training("--cores", 2, "--keep-going", broken, *specs.values()).finish()
    assert status == 2, told
    assert "1 of 3: broken: ended with status 2, see its log" in told
    assert "3 of 3: " in told
    assert "iteration" not in told
    assert f"error: {tmp_path / 'nowhere'}" in (broken.parent / "log").read_text()
    for name, spec in specs.items():
        assert equal(spec, finished[name])
        assert scored(spec, "multi_scale_flip").weights_sha256 == scored(spec).weights_sha256
        assert "iteration 12/12" in (spec.parent / "log").read_text()
    assert main([str(spec) for spec in specs.values()]) == 0
    assert capfd.readouterr().out.count("finished already") == 2


@pytest.mark.parametrize(("signum", "status"), [("SIGTERM", 75), ("SIGINT", 130), ("SIGKILL", -9)])
def test_children_end_with_their_parent_and_go_on_later(data: Path, tmp_path: Path, signum: str, status: int) -> None:
    specs = write_runs(tmp_path, data, 100).values()
    training = Training("--cores", 2, *specs)
    while not all(checkpoint.iterations(work_of(spec)) for spec in specs):
        assert training.process.is_alive(), training.finish()
        time.sleep(0.005)
    os.kill(training.process.pid, signal.Signals[signum])
    assert training.finish()[0] == status
    deadline = time.monotonic() + 60
    while {progress_of(spec)["state"] for spec in specs} != {"interrupted"}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    status, told = Training("--cores", 2, *specs).finish()
    assert status == 0, told
    assert [trained(spec).resumes for spec in specs] == [1, 1]


def test_only_the_cpu_is_shared(tmp_path: Path, data: Path, capsys) -> None:
    spec = write_run(tmp_path, data, "other", device="auto")
    assert main(["--cores", "2", str(spec)]) == 2
    assert "--cores: for runs on the CPU, and these ask for device auto" in capsys.readouterr().err
