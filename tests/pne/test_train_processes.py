"""Several processes train one run: same global batch, same samples, one set of files."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from spy_hooks import notes
from tiny_runs import draw_images, environment, write_run

from pne.engine import checkpoint
from pne.results import EvaluationResult, TrainResult, read_result
from pne.train import main

SETTLED = {  # without batch norm and dropout, two processes do the mathematics of one
    "model.backbone.norm_cfg": {"type": "GN", "num_groups": 4},
    "model.decode_head.norm_cfg": {"type": "GN", "num_groups": 4},
    "model.decode_head.dropout_ratio": 0.0,
}
HERE = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_images(tmp_path_factory.mktemp("data") / "camvid", test=5)


def torchrun(*arguments: Any) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        "pne.train",
    ]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), "PYTHONPATH": HERE},
    )


LAUNCH = "import sys; from pne.engine.command import launch; sys.exit(launch('pne.train', sys.argv[1:], 2))"


def launched(spec: Path) -> subprocess.Popen:
    """The command as it runs on two GPUs: it starts its processes itself."""
    command = [sys.executable, "-c", LAUNCH, str(spec)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


def finish(process: subprocess.Popen) -> tuple[int, str]:
    out, err = process.communicate(timeout=200)
    return process.returncode, out + err


def spy(folder: Path) -> dict[str, Any]:
    imports = {"imports": ["pne.heads", "pne.datasets.registered", "spy_hooks"], "allow_failed_imports": False}
    return {**SETTLED, "custom_imports": imports, "custom_hooks": [{"type": "SpyHook", "folder": str(folder)}]}


def work_of(spec: Path) -> Path:
    return spec.parents[2] / "work" / spec.parent.name


def test_two_processes_train_what_one_does(tmp_path: Path, data: Path) -> None:
    alone = write_run(tmp_path, data, "alone", batch_size=4, iterations=4, change=spy(tmp_path / "one"))
    assert main([str(alone)]) == 0
    pair = write_run(tmp_path, data, "pair", batch_size=4, iterations=4, change=spy(tmp_path / "two"))
    status, told = finish(torchrun(pair))
    assert status == 0, told

    one, two = notes(tmp_path / "one"), [notes(tmp_path / "two", rank) for rank in (0, 1)]
    assert one[0]["weights"] == two[0][0]["weights"] == two[1][0]["weights"]
    for expected, first, second in zip(one[1:], two[0][1:], two[1][1:], strict=True):
        assert len(first["images"]) == len(second["images"]) == 2
        for key in ("images", "labels", "names"):
            assert sorted(first[key] + second[key]) == sorted(expected[key])

    results = [read_result(spec.parent / "train.json", TrainResult) for spec in (alone, pair)]
    assert [(r.provenance.world_size, r.provenance.micro_batch) for r in results] == [(1, 4), (2, 2)]
    assert results[1].losses == pytest.approx(results[0].losses, rel=1e-4)
    states = [checkpoint.load(work_of(spec) / "final.pth")["state_dict"] for spec in (alone, pair)]
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-3, atol=1e-5, msg=name)
    scores = [read_result(spec.parent / "single_scale.json", EvaluationResult) for spec in (alone, pair)]
    assert scores[1].images == 5
    assert scores[1].miou == pytest.approx(scores[0].miou, abs=1.0)
    assert told.count("iteration 4/4") == 1  # only the first process speaks


def test_two_processes_with_contrast_stop_and_go_on(tmp_path: Path, data: Path) -> None:
    contrast = {
        "loss": {"type": "PixelContrastLoss", "memory_size": 4},
        "weight": 0.1,
        "start": 2,
        "projection": {"channels": 8},
    }
    results = []
    for name in ("through", "stopped"):
        spec = write_run(
            tmp_path, data, name, batch_size=4, iterations=30, contrast=contrast, checkpoint_interval=5, log_interval=10
        )
        process = launched(spec)
        if name == "stopped":
            while not (work_of(spec) / "iter_5.pth").exists():
                assert process.poll() is None, finish(process)
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            status, told = finish(process)
            assert status == 75
            assert json.loads((work_of(spec) / "progress.json").read_text())["state"] == "interrupted", told
            process = torchrun(spec)
        status, told = finish(process)
        assert status == 0, told
        results.append(read_result(spec.parent / "train.json", TrainResult))
    assert [result.resumes for result in results] == [0, 1]
    assert results[0].weights_sha256 == results[1].weights_sha256


def test_a_batch_that_cannot_be_split_is_refused(tmp_path: Path, data: Path) -> None:
    status, told = finish(torchrun(write_run(tmp_path, data, batch_size=3)))
    assert status != 0
    assert "batch_size: 3 images cannot be split evenly over 2 processes; use one of 1, 3" in told
