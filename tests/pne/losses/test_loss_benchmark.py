"""The benchmark of the losses runs and writes what it says; no time is judged."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch


@pytest.fixture(scope="module")
def benchmark(repository):
    spec = importlib.util.spec_from_file_location("loss_benchmark", repository / "benchmarks" / "loss.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_writes_one_record_per_loss_and_pattern(benchmark, tmp_path, capsys):
    output = tmp_path / "folder" / "loss.jsonl"
    sizes = ["--rounds", "2", "--warmup", "0", "--threads", "1", "--memory-size", "3"]
    benchmark.main(["--tiny", *sizes, "--output", str(output)])
    printed = capsys.readouterr().out
    records = [json.loads(line) for line in output.read_text().splitlines()]
    losses = ["paper", "authors", "asymmetric", "cipc", "cipc_memory_3"]
    assert [(record["pattern"], record["loss"]) for record in records] == [
        (pattern, loss) for pattern in ("confusions", "uniform") for loss in losses
    ]
    for record in records:
        assert record["ratio"] == record["time_s"] / record["projection_time_s"]
        assert record["anchors"] > 0
        embeddings = record["images"] * record["dim"] * record["size"] ** 2 * 4 / 2**20
        assert record["embeddings_mib"] == embeddings
        assert record["peak_extra_memory_mib"] >= embeddings  # the gradient alone is as large
        assert record["target"] == {"paper": 0.1, "authors": 0.3}.get(record["loss"])
        assert f"| {record['pattern']} | {record['loss']} |" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--rounds", "0"), "must be at least 1"), (("--device", "cuda"), "torch finds no CUDA device")],
)
def test_refuses_what_cannot_be_measured(benchmark, arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        benchmark.main(list(arguments))
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
