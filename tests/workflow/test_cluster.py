"""What a cluster is told: the profiles, what a run asks of a machine, the sbatch lines; and what it answers, in words.

The recording sbatch refuses every job, so each is submitted again until its retries are used up: the lines show how
time and memory grow from attempt to attempt.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from checkout import Checkout

from pne.spec import load_track
from workflows.queue import explain, parse_jobs

SHARED = ("keep-going", "rerun-triggers", "ignore-incomplete", "show-failed-logs", "quiet")


def profile(repository: Path, name: str) -> str:
    return (repository / "workflows/profiles" / name / "config.yaml").read_text()


@pytest.mark.parametrize("name", ["local", "slurm"])
def test_what_protects_results_is_the_same_in_all_profiles(repository: Path, name: str) -> None:
    default, other = (yaml.safe_load(profile(repository, each)) for each in ("default", name))
    assert {key: other[key] for key in SHARED} == {key: default[key] for key in SHARED}


def test_snakemake_finds_the_default_profile(repository: Path) -> None:
    assert (repository / "profiles").is_symlink()
    assert (repository / "profiles/default/config.yaml").is_file()


def test_the_block_to_fill_in_is_valid_line_by_line(repository: Path) -> None:
    block = profile(repository, "slurm").split("# ---")[1]
    default = re.sub(r"^  # ", "  ", block.split("\n", 1)[1].split("\n# A run asks")[0], flags=re.MULTILINE)
    filled = yaml.safe_load(default)["default-resources"]
    assert {"slurm_account", "slurm_partition", "qos", "constraint", "slurm_extra", "mem_mb", "runtime"} == set(filled)
    model = re.search(r"^# (set-resources: \{.*)$", block, flags=re.MULTILINE)
    assert model
    gpu_rules = {"train", "retrain", "evaluate"}
    assert set(yaml.safe_load(model[1])["set-resources"]) == gpu_rules
    packed = r"^# ((?:groups|group-components|resources|set-resource-scopes): .*)$"
    packing = "\n".join(re.findall(packed, block, flags=re.MULTILINE))
    assert yaml.safe_load(packing) == {
        "groups": {"train": "training"},
        "group-components": {"training": 5},
        "resources": {"gpu": 1},
        "set-resource-scopes": {"gpu": "local"},
    }
    gres = "\n".join(re.findall(r"^# ((?:set-resources:|  \w+: ).*)$", block.split("rejects")[1], flags=re.MULTILINE))
    assert set(yaml.safe_load(gres)["set-resources"]) == gpu_rules


@pytest.fixture
def paper(repository: Path):
    def load(**runtime: object):
        track = load_track("paper", experiments=repository / "experiments", runtime=runtime)
        return track.declaration.resources, next(run for run in track.runs.values() if run.model == "deeplabv3_r101")

    return load


def test_time_and_memory_grow_with_the_attempt(paper) -> None:
    needs, run = paper()
    first = needs.minutes(run.model, run.iterations)
    assert first >= run.iterations * needs.seconds_per_iteration["default"] / 60
    assert needs.minutes(run.model, run.iterations, 3) == 3 * first
    assert [needs.memory(1), needs.memory(1, 3)] == [needs.memory_mb, 2 * needs.memory_mb]


def test_more_gpus_need_more_cores_and_memory(paper) -> None:
    (needs, one), (_, four) = paper(), paper(gpus=4)
    assert (one.runtime.claimed_gpus, four.runtime.claimed_gpus) == (1, 4)
    assert four.runtime.cores == 4 * one.runtime.cores == 4 * (one.runtime.threads + one.runtime.workers)
    assert needs.memory(4) == 4 * needs.memory(1)


def test_a_run_on_the_cpu_asks_for_no_gpu(paper) -> None:
    _, run = paper(device="cpu")
    assert run.runtime.claimed_gpus == 0
    assert run.runtime.cores > 0


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
            *[f"run_{run}" for run in cityscapes[:runs]],
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


LINES = """\
7|RUNNING|3:21|11:00|node3|rule_train_wildcards_quick_cityscapes-deeplabv3_r50-pne-s0-0123abcd|None
8|PENDING|0:00|11:00||rule_evaluate_wildcards_quick_ade20k-ocrnet_w48-base-s0-4567cdef|(Resources)
9|PENDING|0:00|5:00||rule_examine_cityscapes|(AssocGrpGRES)
10|PENDING|0:00|5:00||(null)|Priority
"""


def test_jobs_are_told_by_what_they_do() -> None:
    jobs = parse_jobs(LINES)
    assert [job.describe() for job in jobs] == [
        "7  train cityscapes-deeplabv3_r50-pne-s0-0123abcd: running on node3 for 3:21 of 11:00",
        "8  evaluate ade20k-ocrnet_w48-base-s0-4567cdef: pending, waits until GPUs, cores or memory are free",
        "9  examine_cityscapes : pending, a limit of the account or the qos is reached (AssocGrpGRES)",
    ]


def test_reasons_are_put_into_words() -> None:
    down = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert explain(down) == "every node that it could use is down, drained or reserved"
    assert explain("SomethingNew") == "SomethingNew"
