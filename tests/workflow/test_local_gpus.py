"""Runs on one machine with several GPUs: as many at a time as the profile says, each with a device of its own."""

import sys
from pathlib import Path

import pytest
from checkout import Checkout
from trainings import MARK, Watch

from pne.spec import load_track

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


STAND_IN = """\
import sys, time
from pathlib import Path
note = Path("trained").open("a")
for event in ("begins", "ends"):
    print(event, sys.argv[1], file=note, flush=True)
    time.sleep(0.5)
for name in ("train.json", "single_scale.json", "history.jsonl"):
    Path(sys.argv[1]).with_name(name).write_text("made up")
"""
PROFILE = ("--workflow-profile", "profiles/local", "--cores", "2")
CONFIG = ("--config", "iterations=4", "device=auto", "seeds=0,1")


@pytest.fixture
def two_runs(checkout: Checkout) -> Checkout:
    """A copy of the project with a table of one row."""
    (checkout / "experiments/tables/one_run.yaml").write_text(TABLE)
    return checkout


def test_a_run_waits_for_a_free_device(two_runs: Checkout, tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    watch = Watch(str(two_runs.folder))
    watch.start()
    two_runs.snakemake(
        "table_one_run", *PROFILE, "--resources", "gpu=2", *CONFIG,
        CUDA_VISIBLE_DEVICES="7", TMPDIR=str(tmp_path / "locks"), **{MARK: str(two_runs.folder)},
    )  # fmt: skip
    assert max(len(trainings) for trainings in watch.stop()) == 2
    logs = "".join(path.read_text() for path in (two_runs / "results/quick/runs").glob("*/log"))
    assert logs.count("waiting for 1 free GPU of 7") == 1
    assert [path.name for path in (tmp_path / "locks").rglob("*.lock")] == ["gpu7.lock"]


def test_the_profile_limits_how_many_train_at_a_time(two_runs: Checkout) -> None:
    """A program in the place of training notes when it begins and ends; under two GPUs two would overlap."""
    (two_runs / "pne/train.py").write_text(STAND_IN)
    track = load_track("quick", experiments=two_runs / "experiments", iterations=4, seeds=[0, 1])
    targets = [f"run_{run}" for run in track.tables["one_run"].rows["base"].runs.values()]
    two_runs.snakemake(*targets, *PROFILE, *CONFIG, CUDA_VISIBLE_DEVICES="4,7")
    events = [line.split() for line in (two_runs / "trained").read_text().splitlines()]
    assert [event for event, _ in events] == ["begins", "ends", "begins", "ends"]
    assert events[0][1] == events[1][1] != events[2][1] == events[3][1]
