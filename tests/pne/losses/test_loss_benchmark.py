"""The benchmark of the losses runs and writes what it says; no time is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch


def test_writes_one_record_per_loss_and_pattern(repository, tmp_path):
    output = tmp_path / "folder" / "loss.jsonl"
    command = [sys.executable, "benchmarks/loss.py", "--tiny", "--rounds", "2", "--warmup", "0", "--threads", "1"]
    done = subprocess.run(
        [*command, "--memory-size", "3", "--output", str(output)],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
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
        assert f"| {record['pattern']} | {record['loss']} |" in done.stdout


def test_refuses_what_cannot_be_measured(repository):
    def message(*arguments):
        done = subprocess.run(
            [sys.executable, "benchmarks/loss.py", *arguments],
            cwd=repository,
            env={**os.environ, "PYTHONPATH": str(repository)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        return done.stderr

    assert "must be at least 1" in message("--rounds", "0")
    if not torch.cuda.is_available():
        assert "torch finds no CUDA device" in message("--device", "cuda")
