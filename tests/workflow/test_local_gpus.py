"""Runs on one machine with several GPUs: as many at a time as the profile says, each with a device of its own."""

import sys
from pathlib import Path

import pytest
from checkout import Checkout
from trainings import MARK, Watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ITERATIONS = 4


def train(checkout: Checkout, locks: Path, *options: str) -> tuple[str, int]:
    """Train a table's three runs with two visible GPUs; return all logs and how many trained at a time."""
    watch = Watch(str(checkout.folder))
    watch.start()
    checkout.snakemake(
        "table_positive_weights", "--workflow-profile", "profiles/local", "--cores", "3", *options,
        "--config", f"iterations={ITERATIONS}", "device=auto",
        CUDA_VISIBLE_DEVICES="4,7", TMPDIR=str(locks), **{MARK: str(checkout.folder)},
    )  # fmt: skip
    seen = watch.stop()
    logs = "".join(path.read_text() for path in (checkout / "results/quick/runs").glob("*/log"))
    return logs, max(len(trainings) for trainings in seen)


def test_a_run_waits_for_a_free_device(checkout: Checkout, tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    locks.mkdir()
    logs, at_a_time = train(checkout, locks, "--resources", "gpu=3")
    assert at_a_time == 3
    assert "waiting for 1 free GPU of 4, 7" in logs
    assert {path.name for path in locks.rglob("*.lock")} == {"gpu4.lock", "gpu7.lock"}


def test_the_profile_limits_how_many_train_at_a_time(checkout: Checkout, tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    locks.mkdir()
    logs, at_a_time = train(checkout, locks)
    assert at_a_time == 1
    assert "waiting" not in logs
