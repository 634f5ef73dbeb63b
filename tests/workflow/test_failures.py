"""A workflow that really trains, with a run that fails, a kill of Snakemake and training anew: nothing is lost."""

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable

from checkout import Checkout

from pne.spec import load_track

TABLE = """\
table: diverging
question: Does a run that diverges leave the others alone?
dataset: cityscapes
model: deeplabv3_r50
columns:
  name: {title: Row, kind: label}
  miou: {title: mIoU, kind: metric, metric: miou}
rows:
  sound: {label: Sound}
  broken: {label: Broken, config: {optim_wrapper.optimizer.lr: 1.0e+30}}
"""
TARGET = ("table_diverging", "--config", "iterations=6")


def runs(checkout: Checkout) -> dict[str, str]:
    """Ids of the two runs by row."""
    track = load_track("quick", experiments=checkout / "experiments", iterations=6)
    return {key: row.runs[0] for key, row in track.tables["diverging"].rows.items()}


def measured(checkout: Checkout) -> set[str]:
    """Rows with a measured mIoU."""
    with (checkout / "results/quick/tables/diverging.csv").open() as file:
        return {row["row"] for row in csv.DictReader(file) if row["miou_measured"]}


def results(checkout: Checkout, run: str) -> dict[str, bytes]:
    """Content of a run's result files by name."""
    return {path.name: path.read_bytes() for path in (checkout / f"results/quick/runs/{run}").glob("*.json")}


def test_failures_kills_and_training_anew_lose_no_result(checkout: Checkout) -> None:
    (checkout / "experiments/tables/diverging.yaml").write_text(TABLE)
    output = checkout.snakemake("--cores", "2", "--retries", "1", *TARGET, accept=(1,))
    sound, broken = (runs(checkout)[row] for row in ("sound", "broken"))
    before = results(checkout, sound)
    assert set(before) == {"train.json", "single_scale.json"}
    assert not results(checkout, broken)
    log = (checkout / f"results/quick/runs/{broken}/log").read_text()
    assert log.endswith("lower the learning rate (the first attempt's; another one does not mend it)\n")
    assert log.count("iterations, batch") == 1  # it was begun again, alone and by Snakemake, and did not train
    text = (checkout / "results/quick/tables/diverging.md").read_text()
    assert "–" in next(line for line in text.splitlines() if "Broken" in line)
    assert "fail" in text.lower()
    assert measured(checkout) == {"sound"}
    assert "nan" in output.lower()  # the end of the failed run's log
    assert "results/quick/tables: diverging.md" in output
    assert "python -m analysis.status --track quick --iterations 6" in output

    # The next call takes up the failed run alone. It is mended, and Snakemake is killed while it trains.
    assert checkout.plan(*TARGET).of("train") == {broken}
    checkout.replace("experiments/tables/diverging.yaml", "1.0e+30", "0.02")
    mended = runs(checkout)["broken"]
    with (checkout / "workflow.log").open("w") as log:
        workflow = subprocess.Popen(
            [sys.executable, "-m", "snakemake", "--cores", "1", *TARGET],
            cwd=checkout.folder, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        wait_for((checkout / f"results/quick/runs/{mended}/log").exists, workflow)
        workflow.kill()  # the training goes on
        workflow.wait()
    wait_for((checkout / f"results/quick/runs/{mended}/train.json").exists, None)
    kept = results(checkout, mended)
    checkout.ask("--unlock", *TARGET)
    plan = checkout.plan(*TARGET)
    assert not plan.of("train")
    assert plan.of("print") == {"diverging"}
    checkout.snakemake("--cores", "1", *TARGET)
    assert results(checkout, mended) == kept
    assert results(checkout, sound) == before
    assert measured(checkout) == {"sound", "broken"}
    assert checkout.plan(*TARGET).empty

    # Training anew keeps the results until the new ones are whole: here it fails first.
    target = (*TARGET, f"retrain={sound}")
    data = checkout / "data/street_city"
    data.rename(checkout / "data/away")
    data.mkdir()
    (data / "meta.json").write_text("{}\n")  # looks drawn, is empty
    checkout.snakemake("--cores", "1", *target, accept=(1,))
    assert results(checkout, sound) == before
    (data / "meta.json").unlink()
    data.rmdir()
    (checkout / "data/away").rename(data)
    checkout.snakemake("--cores", "1", *target)
    after = results(checkout, sound)
    assert set(after) == set(before)
    assert after["train.json"] != before["train.json"]
    assert checkout.plan(*target).empty  # once per training code
    assert checkout.plan(*TARGET).empty


def wait_for(condition: Callable[[], bool], process: subprocess.Popen | None, seconds: float = 120) -> None:
    """Wait until something is so, while a process that should bring it about lives."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s"
        assert process is None or process.poll() is None, "the workflow ended too early"
        time.sleep(0.2)
