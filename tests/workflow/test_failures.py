"""A run that fails, in a workflow that really trains: the others finish, the table prints a dash, nothing is lost."""

import pytest
from checkout import Checkout

from pne.resolve import load_track

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
CONFIG = ("--config", "iterations=6")


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, str]:
    """A checkout after a workflow of two runs, one of which diverged, and what the workflow printed."""
    checkout = Checkout(tmp_path_factory.mktemp("failed") / "checkout")
    (checkout / "experiments/tables/diverging.yaml").write_text(TABLE)
    return checkout, checkout.snakemake("--cores", "2", "table_diverging", *CONFIG, accept=(1,))


def runs(checkout: Checkout) -> dict[str, str]:
    """Ids of the two runs by row."""
    track = load_track("quick", experiments=checkout / "experiments", iterations=6)
    return {key: row.runs[0] for key, row in track.tables["diverging"].rows.items()}


def test_the_other_run_finishes(failed: tuple[Checkout, str]) -> None:
    checkout, _ = failed
    results = checkout / "results/quick/runs"
    assert (results / runs(checkout)["sound"] / "train.json").stat().st_size
    assert (results / runs(checkout)["sound"] / "single_scale.json").stat().st_size
    assert not (results / runs(checkout)["broken"] / "train.json").exists()


def test_the_table_prints_a_dash_with_the_reason(failed: tuple[Checkout, str]) -> None:
    checkout, _ = failed
    text = (checkout / "results/quick/tables/diverging.md").read_text()
    sound, broken = (next(line for line in text.splitlines() if name in line) for name in ("Sound", "Broken"))
    assert any(character.isdigit() for character in sound)
    assert "–" in broken
    assert "fail" in text.lower()


def test_the_workflow_says_what_failed_and_where_things_are(failed: tuple[Checkout, str]) -> None:
    _, output = failed
    assert "results/quick/tables: diverging.md" in output
    assert "python -m analysis.status --track quick --iterations 6" in output
    assert "nan" in output.lower()  # the end of the failed run's log


def test_the_next_call_takes_up_the_failed_run_alone(failed: tuple[Checkout, str]) -> None:
    checkout, _ = failed
    assert checkout.plan("table_diverging", *CONFIG).of("train") == {runs(checkout)["broken"]}


def test_a_mended_run_completes_the_table(failed: tuple[Checkout, str]) -> None:
    checkout, _ = failed
    checkout.replace("experiments/tables/diverging.yaml", "1.0e+30", "0.02")
    checkout.snakemake("--cores", "1", "table_diverging", *CONFIG)
    text = (checkout / "results/quick/tables/diverging.md").read_text()
    assert "–" not in next(line for line in text.splitlines() if "Broken" in line)
    assert checkout.plan("table_diverging", *CONFIG).empty


def test_a_retrain_replaces_results_and_keeps_them_until_then(failed: tuple[Checkout, str]) -> None:
    """After the table is complete: one run is trained anew, first without success, then with it."""
    checkout, _ = failed
    run = runs(checkout)["sound"]
    folder = checkout / "results/quick/runs" / run
    before = {path.name: path.read_bytes() for path in folder.glob("*.json")}
    target = ("table_diverging", *CONFIG, f"retrain={run}")

    (checkout / "data/street_city").rename(checkout / "data/away")
    (checkout / "data/street_city").mkdir()
    (checkout / "data/street_city/meta.json").write_text("{}\n")
    checkout.snakemake("--cores", "1", *target, accept=(1,))
    assert {path.name: path.read_bytes() for path in folder.glob("*.json")} == before

    (checkout / "data/street_city/meta.json").unlink()
    (checkout / "data/street_city").rmdir()
    (checkout / "data/away").rename(checkout / "data/street_city")
    checkout.snakemake("--cores", "1", *target)
    after = {path.name: path.read_bytes() for path in folder.glob("*.json")}
    assert set(after) == set(before)
    assert after["train.json"] != before["train.json"]
    assert checkout.plan(*target).empty
    assert checkout.plan("table_diverging", *CONFIG).empty
