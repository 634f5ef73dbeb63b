"""The benchmark of the losses runs and writes what it says; no time is judged."""

import json

import pytest
import torch

from benchmarks.loss import main


def test_writes_one_record_per_loss_and_pattern(tmp_path, capsys):
    output = tmp_path / "folder" / "loss.jsonl"
    sizes = ["--rounds", "2", "--warmup", "0", "--threads", "1", "--memory-size", "3"]
    main(["--tiny", *sizes, "--output", str(output)])
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
def test_refuses_what_cannot_be_measured(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
