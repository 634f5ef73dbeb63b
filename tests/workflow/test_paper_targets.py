"""Targets around the paper's runs: rehearsals before them, archives for the test server after them."""

from checkout import Checkout

from pne.rehearse.record import group_runs, read_rehearsal
from pne.spec import load_track

PAPER = ("--config", "track=paper", "data_root=/data")


def test_rehearsals_examine_the_data_and_train_nothing(checkout: Checkout) -> None:
    groups = group_runs(load_track("paper", experiments=checkout / "experiments"))
    jobs = checkout.plan("rehearse", *PAPER).jobs
    assert jobs["rehearse_run"] == len(groups)
    assert set(jobs) == {"rehearse", "rehearse_run", "examine_cityscapes", "examine_coco_stuff", "examine_ade20k"}


def test_more_seeds_need_no_more_rehearsals(checkout: Checkout) -> None:
    one, three = (checkout.plan("rehearse", *PAPER, f"seeds={seeds}").jobs for seeds in ("0", "0,1,2"))
    assert one["rehearse_run"] == three["rehearse_run"]


def test_shortened_runs_are_not_rehearsed(checkout: Checkout) -> None:
    output = checkout.snakemake("--dry-run", "rehearse", *PAPER, "iterations=10", accept=(1,))
    assert "rehearse: leave out --config iterations=..." in output


def test_a_rehearsal_job_leaves_its_record(checkout: Checkout) -> None:
    groups = group_runs(load_track("quick", experiments=checkout / "experiments"))
    run = groups[0].run.run
    target = f"results/quick/rehearsals/{run}.json"
    checkout.snakemake("--cores", "1", target, "--config", "workers=0")
    record = read_rehearsal(checkout / target)
    assert (record.request.runs[0], record.trained.iterations, record.request.reduced) == (run, 20, False)
    assert not list((checkout / "results/quick").glob("work/*"))
    assert not list((checkout / f"results/quick/runs/{run}").glob("*"))
    assert checkout.plan(target, "--config", "workers=1").empty
    other = next(run for group in groups for run in group.stands_for[1:])
    output = checkout.snakemake("--dry-run", f"results/quick/rehearsals/{other}.json", accept=(1,))
    assert f"{other} is rehearsed as " in output


def test_every_cityscapes_run_of_the_paper_has_a_target_for_the_server(checkout: Checkout) -> None:
    track = load_track("paper", experiments=checkout / "experiments")
    targets = set(checkout.snakemake("--list-target-rules", *PAPER).split())
    for name, run in track.runs.items():
        assert (f"submission_cityscapes_{name}" in targets) == (run.dataset == "cityscapes")
    run = next(run for run in track.runs if run.startswith("cityscapes-deeplabv3_r101-pne"))
    plan = checkout.plan(f"submission_cityscapes_{run}", *PAPER)
    assert plan.of("train") == {run}
    assert plan.jobs["submission"] == 1
