"""The exact sbatch lines that the SLURM profile leads to, recorded by commands that stand in for a cluster's.

The recording sbatch refuses every job, so each is submitted again until its retries are used up: the lines show how
time and memory grow from attempt to attempt.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from checkout import Checkout

RECORDER = """#!{python}
import json, sys
with open({record!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + chr(10))
sys.exit("sbatch: error: the cluster is closed")
"""
ANSWERS = {
    "scontrol": "echo 'MinJobAge = 300 sec'",
    "sinfo": "echo 'gpu*'",
    "squeue": "true",
    "sacct": "true",
    "sacctmgr": "true",
    "scancel": "true",
    "srun": "exit 1",
}


@pytest.fixture
def cluster(checkout: Checkout, tmp_path: Path):
    """Return a function that submits the training of one run and returns the options of each sbatch call."""
    folder, record = tmp_path / "bin", tmp_path / "sbatch.jsonl"
    folder.mkdir()
    (folder / "sbatch").write_text(RECORDER.format(python=sys.executable, record=str(record)))
    for name, answer in ANSWERS.items():
        (folder / name).write_text(f"#!/bin/sh\n{answer}\n")
    for path in folder.iterdir():
        path.chmod(0o755)
    marker = checkout / "data/street_city/meta.json"
    marker.parent.mkdir(parents=True)
    marker.write_text("{}\n")
    cityscapes = [run for run in sorted(checkout.runs()) if run.startswith("cityscapes-deeplabv3_r50")]

    def submit(*arguments: str, runs: int = 1, config: tuple[str, ...] = ("device=auto",)) -> list[list[str]]:
        output = checkout.snakemake(
            *[f"results/quick/runs/{run}/train.json" for run in cityscapes[:runs]],
            "--workflow-profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "1", *arguments,
            "--config", *config,
            accept=(1,), PATH=f"{folder}{os.pathsep}{os.environ['PATH']}",
        )  # fmt: skip
        assert record.exists(), output
        calls = [json.loads(line) for line in record.read_text().splitlines()]
        record.unlink()
        return [options_of(call, checkout, cityscapes[:runs]) for call in calls]

    return submit


def options_of(call: list[str], checkout: Checkout, runs: list[str]) -> list[str]:
    """Keep the options before the wrapped command, without what differs from call to call: names and folders."""
    wrapped = next(word for word in call if word.startswith("--wrap="))
    assert all(f"train:track=quick,run={run}" in wrapped for run in runs)
    options = call[: call.index(wrapped)]
    for option in ("--job-name", "--output"):
        del options[options.index(option) : options.index(option) + 2]
    return [word.replace(str(checkout.folder), "CHECKOUT").replace(runs[0], "RUN") for word in options]


def line(minutes: int, memory: int, *last: str) -> list[str]:
    """One expected line."""
    return [
        "--parsable", "--export=ALL", "--comment", "rule_train_wildcards_quick_RUN", "-p", "gpu",
        "-t", str(minutes), "--mem", str(memory), "--requeue", "--cpus-per-task=1", "-D", "CHECKOUT", *last,
    ]  # fmt: skip


def test_a_run_asks_for_a_gpu_and_for_more_time_and_memory_each_time(cluster) -> None:
    assert cluster() == [line(11, 4000, "--gpus=1"), line(22, 6000, "--gpus=1"), line(33, 8000, "--gpus=1")]


def test_a_cluster_that_rejects_gpus_gets_gres(cluster) -> None:
    calls = cluster("--retries", "0", "--set-resources", "train:gpu=0", "train:gres='gpu:1'")
    assert calls == [line(11, 4000, "--gres=gpu:1")]


def test_what_a_cluster_wants_to_know_reaches_sbatch(cluster) -> None:
    (call,) = cluster(
        "--retries", "0", "--set-resources", "train:gpu_model=a100", "--default-resources", "slurm_partition=long",
        "qos=high", "constraint=big", "slurm_extra='--mail-type=FAIL'", "mem_mb=4000", "runtime=60",
    )  # fmt: skip
    assert call == [
        "--parsable", "--export=ALL", "--comment", "rule_train_wildcards_quick_RUN", "-p", "long", "-t", "11",
        "-C", "big", "--qos=high", "--mem", "4000", "--requeue", "--cpus-per-task=1", "--mail-type=FAIL",
        "-D", "CHECKOUT", "--gpus=a100:1",
    ]  # fmt: skip


def test_a_run_of_two_gpus_asks_for_both(cluster) -> None:
    (call,) = cluster("--retries", "0", config=("device=auto", "gpus=2"))
    assert "--gpus=2" in call
    assert "--cpus-per-task=2" in call
    assert call[call.index("--mem") + 1] == "8000"


def test_short_runs_share_a_job_one_after_the_other(cluster) -> None:
    packing = (
        "--groups", "train=training", "--group-components", "training=3", "--resources", "gpu=1",
        "--set-resource-scopes", "gpu=local",
    )  # fmt: skip
    (call,) = cluster("--retries", "0", *packing, runs=3)
    assert call[call.index("-t") + 1] == "33"
    assert call[call.index("--mem") + 1] == "4000"
    assert "--gpus=1" in call
