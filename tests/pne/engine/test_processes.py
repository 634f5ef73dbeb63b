"""Several processes train one run: same global batch, same samples, one set of files."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from spy_hooks import notes
from tiny_runs import environment, scored, spied, train_in_two, trained, work_of, write_run

from pne.engine import checkpoint
from pne.train import main

SETTLED = {  # without batch norm and dropout, two processes do the mathematics of one
    "model.backbone.norm_cfg": {"type": "GN", "num_groups": 4},
    "model.decode_head.norm_cfg": {"type": "GN", "num_groups": 4},
    "model.decode_head.dropout_ratio": 0.0,
}
LAUNCH = "import sys; from pne.engine.command import launch; sys.exit(launch('pne.train', sys.argv[1:], 2))"


def test_two_processes_train_what_one_does(tmp_path: Path, data: Path) -> None:
    alone = write_run(tmp_path, data, "alone", batch_size=4, iterations=4, change=SETTLED | spied(tmp_path / "one"))
    assert main([str(alone)]) == 0
    pair = write_run(tmp_path, data, "pair", batch_size=4, iterations=4, change=SETTLED | spied(tmp_path / "two"))
    (status, told), (_, silent) = train_in_two(pair)
    assert status == 0, told

    one, two = notes(tmp_path / "one"), [notes(tmp_path / "two", rank) for rank in (0, 1)]
    assert one[0]["weights"] == two[0][0]["weights"] == two[1][0]["weights"]
    for expected, first, second in zip(one[1:], two[0][1:], two[1][1:], strict=True):
        assert len(first["images"]) == len(second["images"]) == 2
        for key in ("images", "labels", "names"):
            assert sorted(first[key] + second[key]) == sorted(expected[key])

    results = [trained(spec) for spec in (alone, pair)]
    assert [(r.provenance.world_size, r.provenance.micro_batch) for r in results] == [(1, 4), (2, 2)]
    assert results[1].losses == pytest.approx(results[0].losses, rel=1e-4)
    states = [checkpoint.load(work_of(spec) / "final.pth")["state_dict"] for spec in (alone, pair)]
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-3, atol=1e-5, msg=name)
    scores = [scored(spec) for spec in (alone, pair)]
    assert scores[1].images == 5
    assert scores[1].miou == pytest.approx(scores[0].miou, abs=1.0)
    assert told.count("iteration 4/4") == 1
    assert "iteration" not in silent  # only the first process speaks


def test_two_processes_with_contrast_stop_and_go_on(tmp_path: Path, data: Path) -> None:
    contrast = {
        "loss": {"type": "PixelContrastLoss", "memory_size": 4},
        "weight": 0.1,
        "start": 2,
        "projection": {"channels": 8},
    }
    settings = {"batch_size": 4, "iterations": 20, "contrast": contrast, "checkpoint_interval": 5, "log_interval": 10}
    through, stopped = (write_run(tmp_path, data, name, **settings) for name in ("through", "stopped"))
    assert [status for status, _ in train_in_two(through)] == [0, 0]
    # The command as it runs on two GPUs: it starts its processes itself.
    with subprocess.Popen([sys.executable, "-c", LAUNCH, str(stopped)], env=environment()) as process:
        while not (work_of(stopped) / "iter_5.pth").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(200) == 75
    assert json.loads((work_of(stopped) / "progress.json").read_text())["state"] == "interrupted"
    assert [status for status, _ in train_in_two(stopped)] == [0, 0]
    assert [trained(spec).resumes for spec in (through, stopped)] == [0, 1]
    assert trained(through).weights_sha256 == trained(stopped).weights_sha256


def test_a_batch_that_cannot_be_split_is_refused(tmp_path: Path, data: Path) -> None:
    for status, told in train_in_two(write_run(tmp_path, data, batch_size=3)):
        assert status != 0
        assert "batch_size: 3 images cannot be split evenly over 2 processes; use one of 1, 3" in told
