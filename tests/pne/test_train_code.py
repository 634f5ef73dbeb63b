"""A result names the code that trained it, whatever happens to the files meanwhile."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_runs import PNE, draw_images, environment, write_run

from pne.engine.provenance import code_sha256
from pne.results import EvaluationResult, TrainResult, read_result

CONTRAST = {"loss": PNE, "weight": 1.3, "start": 0, "projection": {"channels": 8}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_images(tmp_path_factory.mktemp("data") / "camvid")


@pytest.fixture
def tree(tmp_path: Path, repository: Path) -> Path:
    """A copy of the package that a test may edit."""
    shutil.copytree(repository / "pne", tmp_path / "tree/pne", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "tree"


def hash_of(tree: Path) -> str:
    return code_sha256.__wrapped__(tree / "pne")  # read anew, not remembered


def edit(tree: Path) -> None:
    with (tree / "pne/losses/pne.py").open("a") as stream:
        stream.write(f"\nEDITED_{time.monotonic_ns()} = True\n")


def start(tree: Path, spec: Path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "pne.train", *arguments, str(spec)],
        cwd=tree,
        env={**environment(), "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(path: Path, process: subprocess.Popen) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)


def finish(process: subprocess.Popen, status: int = 0) -> str:
    told, _ = process.communicate(timeout=120)
    assert process.returncode == status, told
    return told


def trained(spec: Path) -> TrainResult:
    return read_result(spec.parent / "train.json", TrainResult)


def test_an_edit_during_training_changes_no_provenance(tmp_path: Path, data: Path, tree: Path) -> None:
    spec = write_run(tmp_path, data, iterations=60, contrast=CONTRAST, checkpoint_interval=1000)
    before = hash_of(tree)
    process = start(tree, spec)
    wait_for(tmp_path / "results/work/tiny/progress.json", process)  # the first iteration is about to begin
    edit(tree)
    assert not (spec.parent / "train.json").exists()
    finish(process)
    assert hash_of(tree) != before
    assert trained(spec).provenance.code_sha256 == before
    assert trained(spec).earlier_code_sha256 == []
    assert trained(spec).is_from(before)
    score = read_result(spec.parent / "single_scale.json", EvaluationResult)
    assert score.provenance.code_sha256 == before


def test_a_resumed_training_names_the_code_it_began_with(tmp_path: Path, data: Path, tree: Path) -> None:
    spec = write_run(tmp_path, data, iterations=60, contrast=CONTRAST)
    work, codes = tmp_path / "results/work/tiny", []
    for iteration in (2, 20):
        codes.append(hash_of(tree))
        process = start(tree, spec)
        wait_for(work / f"iter_{iteration}.pth", process)
        edit(tree)  # the checkpoint that the signal brings about names the code that runs, too
        os.kill(process.pid, signal.SIGTERM)
        finish(process, 75)
    codes.append(hash_of(tree))
    told = finish(start(tree, spec))
    assert "the training code has changed since the checkpoint was written" in told
    result = trained(spec)
    assert len(set(codes)) == 3
    assert (result.resumes, result.provenance.code_sha256, result.earlier_code_sha256) == (2, codes[2], codes[:2])
    assert not any(result.is_from(code) for code in codes)
