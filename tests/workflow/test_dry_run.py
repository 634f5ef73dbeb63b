"""What a dry run needs, plans, refuses and says."""

import contextlib

import pytest
from checkout import Checkout
from finished import finish_run

from pne.rehearse.record import group_runs, read_rehearsals
from pne.spec import load_track, write_spec

NO_TORCH = """
import sys
from snakemake.cli import main
try:
    main(["--dry-run", "--quiet", "all"])
except SystemExit as end:
    assert not end.code, end.code
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"torch", "mmseg", "mmcv", "matplotlib", "sklearn"})
print("heavy:", heavy)
"""
PAPER = ("--config", "track=paper", "data_root=/data")
EXAMINED = {"examine_cityscapes", "examine_coco_stuff", "examine_ade20k"}


def test_no_torch_is_loaded_to_plan_the_work(pristine: Checkout) -> None:
    assert "heavy: []" in pristine.python("-c", NO_TORCH)


def test_the_paper_track_with_three_seeds_is_planned_as_a_whole(pristine: Checkout) -> None:
    plan = pristine.plan("tables", *PAPER, "seeds=0,1,2")
    assert len(plan.of("train")) == len(pristine.runs("paper")) * 3 >= 126
    assert plan.jobs["examine_cityscapes"] == 1
    assert "data_root=/data: no such folder on this machine" in plan.output


def test_each_table_has_a_target_that_asks_for_its_own_runs(pristine: Checkout) -> None:
    plan = pristine.plan("table_contrast_form")
    assert len(plan.of("train")) == 6
    assert not plan.of("evaluate")  # single-scale, and that comes with training
    assert plan.of("print") == {"contrast_form"}


def test_studies_are_made_when_they_are_asked_for(pristine: Checkout) -> None:
    plain = set(pristine.runs("quick"))
    assert pristine.plan("tables").of("train") == plain
    studies = pristine.plan("studies")
    assert studies.of("print") == {"losses", "controls", "fidelity", "temperature_fair", "negatives", "anchors"}
    assert len(studies.of("train") - plain) == 60
    assert pristine.plan("table_losses").of("train") < studies.of("train")


def test_published_tables_train_nothing(pristine: Checkout) -> None:
    assert pristine.plan("published").jobs == {"published": 1, "published_tables": 1}


def test_from_the_archive_tables_and_claims_are_made_and_nothing_is_trained(checkout: Checkout) -> None:
    asked = ("tables", "claims", "figures", "--config", "track=camvid_small", "source=archive")
    jobs = {"table": 1, "tables": 1, "judge": 1, "claims": 1}  # no figure of it does without weights
    assert checkout.plan(*asked).jobs == jobs  # with an empty one
    with contextlib.chdir(checkout.folder):
        run = next(iter(load_track("camvid_small", runtime={"source": "archive"}).runs.values()))
        finish_run(run, "0" * 64)
        written = write_spec(run, {**load_track("camvid_small").config(run.run)}).stat().st_mtime_ns
    assert checkout.plan(*asked).jobs == jobs
    checkout.snakemake("--cores", "1", "table_arms", *asked[3:])
    numbers = (checkout / "results/camvid_small/tables/arms.csv").read_text()
    assert f"{run.run} " in numbers
    assert "65.7" in numbers.splitlines()[1]
    assert (checkout.folder / run.directory / "spec.yaml").stat().st_mtime_ns == written
    assert not (checkout / "results/camvid_small/runs").exists()


def test_from_the_archive_figures_are_drawn_but_those_that_need_weights(pristine: Checkout) -> None:
    plan = pristine.plan("figures", "--config", "track=quick", "source=archive")
    assert plan.of("draw") == {"sweeps", "training_curves", "class_iou"}
    assert set(plan.jobs) == {"draw_figure", "figures"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table_embedding", "--config", "source=archive"), "the archive holds none of its weights; leave out source="),
        (("tables", "--config", "source=attic"), "--config source: "),
        (("tables", "--config", "trak=quick"), "--config trak: unknown key; did you mean track?"),
        (("tables", "--config", "track=quik"), "no track 'quik'; did you mean quick?"),
        (("table_ade20k", "--config", "track=camvid"), "track camvid does not offer table ade20k"),
        (("results/quick/receipts/train/nonsense",), "nonsense is no run of track quick as it is declared now"),
        (("--config", "retrain=nonsense"), "--config retrain=nonsense: no such run"),
        (("--config", "data_root=/data/a{b}c"), "/data/a{b}c: braces stand for wildcards in a workflow; give a link"),
        (("--config", "weights_dir=w}", "iterations=3"), "w}: braces stand for wildcards in a workflow; give a link"),
        (("rehearse", *PAPER, "iterations=10"), "rehearse: leave out --config iterations=..."),
    ],
)
def test_mistakes_are_told_before_anything_runs(pristine: Checkout, arguments: tuple[str, ...], message: str) -> None:
    output = pristine.ask("--dry-run", *arguments, accept=1)
    assert message in output
    assert "Traceback (most recent call last)" not in output


@pytest.mark.parametrize(
    ("file", "right", "wrong", "message"),
    [
        (
            "tables/hyperparameters.yaml", "temperature: 0.3}", "temprature: 0.3}",
            "experiments/tables/hyperparameters.yaml: rows.temperature_0_3: contrast.temprature",
        ),
        ("tracks/quick.yaml", "resources:", "resource:", "experiments/tracks/quick.yaml: resource"),
        (
            "tables/positive_weights.yaml", "w/o $", "w/o ",
            "experiments/tables/positive_weights.yaml: rows.",
        ),
        ("tracks/quick.yaml", "folder: street_city", 'folder: "street{city}"', "street{city}: braces stand for"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_told_with_its_place(
    checkout: Checkout, file: str, right: str, wrong: str, message: str
) -> None:
    checkout.replace(f"experiments/{file}", right, wrong)
    assert message in checkout.ask("--dry-run", accept=1)


def test_rehearsals_examine_the_data_and_train_nothing_whatever_the_seeds(pristine: Checkout) -> None:
    groups = group_runs(load_track("paper", experiments=pristine / "experiments"))
    jobs = pristine.plan("rehearse", *PAPER, "seeds=0,1,2").jobs
    assert jobs == {"rehearse": 1, "rehearse_run": len(groups), **dict.fromkeys(EXAMINED, 1)}


def test_a_rehearsal_job_leaves_its_measures(checkout: Checkout) -> None:
    track = load_track("quick", experiments=checkout / "experiments")
    groups = group_runs(track)
    run = groups[0][0].run
    target = "results/quick/receipts/rehearse/{}"
    checkout.snakemake("--cores", "1", target.format(run), "--config", "workers=0", "checkpoint_interval=7")
    found = read_rehearsals(checkout / "results/quick/rehearsals", track)
    assert set(found) == {run.run for run in groups[0]}
    assert found[run].trained.iterations == 20
    assert not list((checkout / "results/quick").glob("work/*"))
    assert not list((checkout / f"results/quick/runs/{run}").glob("*"))
    assert run not in checkout.ask("--dry-run", "rehearse", "--config", "workers=1")
    other = next(run.run for group in groups for run in group[1:])
    assert f"{other} is rehearsed as " in checkout.ask("--dry-run", target.format(other), accept=1)


def test_every_cityscapes_run_of_the_paper_has_a_target_for_the_server(pristine: Checkout) -> None:
    track = load_track("paper", experiments=pristine / "experiments")
    targets = set(pristine.ask("--list-target-rules", *PAPER).split())
    for name, run in track.runs.items():
        assert (f"submission_cityscapes_{name}" in targets) == (run.dataset == "cityscapes")
    run = next(run for run in track.runs if run.startswith("cityscapes-deeplabv3_r101-pne"))
    plan = pristine.plan(f"submission_cityscapes_{run}", *PAPER)
    assert plan.of("train") == {run}
    assert plan.jobs["submission"] == 1
