"""Runs on one machine with several GPUs: as many at a time as the profile says, each with a device of its own."""

import sys
from pathlib import Path

import pytest
from checkout import Checkout
from trainings import MARK, Watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

TABLE = """\
table: one_run
question: Does a run find a free GPU?
dataset: cityscapes
model: deeplabv3_r50
columns:
  name: {title: Row, kind: label}
  miou: {title: mIoU, kind: metric, metric: miou}
rows:
  base: {label: Base}
"""


def train(checkout: Checkout, locks: Path, visible: str, *options: str) -> tuple[str, int]:
    """Train a row under two seeds; return both logs and how many trained at a time."""
    (checkout / "experiments/tables/one_run.yaml").write_text(TABLE)
    locks.mkdir()
    watch = Watch(str(checkout.folder))
    watch.start()
    checkout.snakemake(
        "table_one_run", "--workflow-profile", "profiles/local", "--cores", "2", *options,
        "--config", "iterations=4", "device=auto", "seeds=0,1",
        CUDA_VISIBLE_DEVICES=visible, TMPDIR=str(locks), **{MARK: str(checkout.folder)},
    )  # fmt: skip
    seen = watch.stop()
    logs = "".join(path.read_text() for path in (checkout / "results/quick/runs").glob("*/log"))
    return logs, max(len(trainings) for trainings in seen)


def test_a_run_waits_for_a_free_device(checkout: Checkout, tmp_path: Path) -> None:
    logs, at_a_time = train(checkout, tmp_path / "locks", "7", "--resources", "gpu=2")
    assert at_a_time == 2
    assert logs.count("waiting for 1 free GPU of 7") == 1
    assert [path.name for path in (tmp_path / "locks").rglob("*.lock")] == ["gpu7.lock"]


def test_the_profile_limits_how_many_train_at_a_time(checkout: Checkout, tmp_path: Path) -> None:
    logs, at_a_time = train(checkout, tmp_path / "locks", "4,7")
    assert at_a_time == 1
    assert "waiting" not in logs
