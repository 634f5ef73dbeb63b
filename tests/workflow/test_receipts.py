"""What is finished is neither lost nor computed again, whatever happens to files, records and options."""

import contextlib
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from checkout import Checkout, Plan
from finished import extract, finish_run

from analysis.figures import features_file
from pne.errors import UserError
from pne.results import TrainResult, read_result
from pne.spec import ResolvedTrack, load_track
from workflows import receipts

MEASURED = (".json", ".jsonl", ".npz", ".png", ".pdf", ".html", ".csv", ".md", ".tex")
EVERY_TRIGGER = ("--rerun-triggers", "mtime", "params", "input", "code", "software-env")
STAND_IN = """\
import shutil, sys
from pathlib import Path
run = Path(sys.argv[-1]).parent
print("line of an attempt", flush=True)
{act}
"""
PUBLISH = 'shutil.copytree(Path("stash", run.name), run, dirs_exist_ok=True)'
REFUSE = 'sys.exit("error: another process trains this run")'


def folder_of(checkout: Checkout, run: str) -> Path:
    return checkout / f"results/quick/runs/{run}"


def runs_of_table(track: ResolvedTrack, table: str) -> list[str]:
    return sorted({run for row in track.tables[table].rows.values() for run in row.runs.values()})


def runs_of(checkout: Checkout, table: str) -> list[str]:
    return runs_of_table(load_track("quick", experiments=checkout / "experiments"), table)


def contents(checkout: Checkout) -> dict[str, bytes]:
    """Everything below ``results`` but receipts and logs."""
    files = [path for path in (checkout / "results").rglob("*") if path.is_file() and path.suffix != ".log"]
    return {str(path): path.read_bytes() for path in files if "receipts" not in path.parts}


def stand_in(checkout: Checkout, *act: str, command: str = "train") -> None:
    """Let a few lines take the place of training."""
    (checkout / f"pne/{command}.py").write_text(STAND_IN.format(act="\n".join(act)))


def stash(checkout: Checkout, run: str) -> None:
    """Take a run's results away, to where a stand-in of its training finds them."""
    (checkout / "stash").mkdir(exist_ok=True)
    shutil.move(folder_of(checkout, run), checkout / "stash" / run)


def set_times(checkout: Checkout, *times: int) -> None:
    """Give all results one time, or else each another one of no order."""
    files = sorted(path for path in (checkout / "results").rglob("*") if path.is_file())
    shuffled = random.Random(0).sample(range(10**9, 10**9 + len(files)), len(files))
    for path, time in zip(files, shuffled, strict=True):
        os.utime(path, times or (time, time))


def each(checkout: Checkout, pattern: str, act: Callable[[Path], object]) -> None:
    """Do something to every file of the track that has such a name."""
    found = sorted((checkout / "results/quick").glob(pattern))
    assert found, pattern
    for path in found:
        act(path)


def copy_folders(checkout: Checkout, copy: Callable[[Path, Path], object], *names: str) -> None:
    """Put copies in the place of folders."""
    for name in names or ("results",):
        copy(checkout / name, checkout / "copy")
        shutil.rmtree(checkout / name)
        (checkout / "copy").rename(checkout / name)


def zip_and_unzip(folder: Path, copy: Path) -> None:
    shutil.unpack_archive(shutil.make_archive(str(folder), "zip", folder), copy)


def leave_work(checkout: Checkout) -> None:
    """What a killed training, and its lock, leave behind."""
    for run in checkout.runs():
        work = checkout / f"results/quick/work/{run}"
        work.mkdir(parents=True)
        (work / "lock").touch()
        (work / "iter_5.pth").write_text("half")
        (work / "progress.json").write_text(json.dumps({"run": run, "state": "failed", "error": "killed"}))


def leave_incomplete(checkout: Checkout) -> None:
    """What Snakemake leaves when it is killed: the marks of its jobs and its lock."""
    for folder, name in (
        ("incomplete", "cmVzdWx0cy9xdWljay9yZWNlaXB0cy90YWJsZS9hZGUyMGs="),
        ("locks", "0.output.lock"),
    ):
        (checkout / f".snakemake/{folder}").mkdir(parents=True, exist_ok=True)
        (checkout / f".snakemake/{folder}/{name}").write_text("results/quick/receipts/table/ade20k\n")
    checkout.ask("--unlock")


def append(checkout: Checkout, line: str, *paths: str) -> None:
    for path in paths:
        with (checkout / path).open("a") as file:
            file.write(f"\n{line}\n")


RERUN = ("--cores", "1", "tables", "figures")
HARMLESS: dict[str, Callable[[Checkout], object]] = {
    "touch train.json": lambda c: each(c, "runs/*/train.json", Path.touch),
    "touch features": lambda c: each(c, "features/*.npz", Path.touch),
    "touch declarations": lambda c: [path.touch() for path in (c / "experiments").rglob("*.yaml")],
    "touch receipts": lambda c: each(c, "receipts/*/*", Path.touch),
    "times shuffled": set_times,
    "times of 1980": lambda c: set_times(c, 315532800, 315532800),
    "a clock ahead": lambda c: set_times(c, 2**32, 2**32),
    "cp -r": lambda c: copy_folders(
        c, partial(shutil.copytree, copy_function=shutil.copyfile), "results", "experiments", "analysis"
    ),
    "cp -al": lambda c: copy_folders(c, partial(shutil.copytree, copy_function=os.link)),
    "zip": lambda c: copy_folders(c, zip_and_unzip),
    "another disk": lambda c: ((c / "results").rename(c / "disk"), (c / "results").symlink_to("disk")),
    "no records": lambda c: shutil.rmtree(c / ".snakemake", ignore_errors=True),
    "kill -9 of Snakemake": leave_incomplete,
    "kill -9 of trainings": leave_work,
    "kill -9 while writing": lambda c: each(c, "runs/*", lambda run: (run / ".train.0123abcd.json").write_text("ha")),
    "--touch": lambda c: c.ask("--touch", *RERUN),
    "-F": lambda c: c.ask("--forceall", *RERUN),
    "-R": lambda c: c.ask("--cores", "1", "tables", "--forcerun", "train", "evaluate"),
    "--delete-all-output": lambda c: c.ask("--delete-all-output", "tables", "claims"),
    "launched twice": lambda c: (c.ask(*RERUN), c.ask(*RERUN)),
    "more seeds in a dry run": lambda c: c.plan("tables", "--config", "seeds=0,1"),
    "fewer iterations in a dry run": lambda c: c.plan("tables", "--config", "iterations=3"),
    "another data folder in a dry run": lambda c: c.plan("tables", "--config", "data_root=elsewhere"),
    "retraining in a dry run": lambda c: c.plan("tables", "--config", "retrain=stale"),
    "training code edited": lambda c: append(c, "CONSTANT = 3", "pne/heads/branch.py", "pne/train.py"),
    "workflow edited": lambda c: append(c, "# note", "Snakefile", "workflows/rules/runs.smk"),
    "no spec.yaml": lambda c: each(c, "runs/*/spec.yaml", Path.unlink),
    "empty spec.yaml": lambda c: each(c, "runs/*/spec.yaml", lambda path: path.write_text("")),
    "another seed in spec.yaml": lambda c: each(
        c, "runs/*/spec.yaml", lambda path: path.write_text(path.read_text().replace("seed: 0", "seed: 7"))
    ),
    "no config.py": lambda c: each(c, "runs/*/config.py", Path.unlink),
    "a line in config.py": lambda c: each(c, "runs/*/config.py", lambda path: append(c, "import os", str(path))),
    "copies of runs beside them": lambda c: each(c, "runs/*", lambda run: shutil.copytree(run, f"{run} (copy)")),
    "files of a file manager": lambda c: each(c, "runs/*", lambda run: (run / "._train.json").write_text("Mac OS X")),
    "backups of an editor": lambda c: each(c, "runs/*/train.json", lambda path: shutil.copy(path, f"{path}~")),
    "not writable": lambda c: each(c, "runs/*/*", lambda path: path.chmod(0o444)),
}  # fmt: skip
PRINTED_ANEW: dict[str, Callable[[Checkout], object]] = {
    "no receipts": lambda c: shutil.rmtree(c / "results/quick/receipts"),
    "receipts cut": lambda c: each(c, "receipts/table/*", lambda path: os.truncate(path, 100)),
    "no tables": lambda c: shutil.rmtree(c / "results/quick/tables"),
    "a table edited": lambda c: each(c, "tables/*.csv", lambda path: path.write_text("edited")),
    "no claims": lambda c: shutil.rmtree(c / "results/quick/claims"),
    "no drawings": lambda c: each(c, "figures/*.pdf", Path.unlink),
    "no report": lambda c: shutil.rmtree(c / "results/quick/report"),
    "declarations edited": lambda c: append(c, "# note", "experiments/tables/ade20k.yaml", "experiments/claims.yaml"),
}
COMPUTES = {"train", "evaluate", "retrain", "extract_features", "extract_predictions", "extract_pairs"}


@pytest.mark.parametrize("accident", [*HARMLESS, *PRINTED_ANEW])
def test_accidents_lose_nothing_and_compute_nothing(drawn: Checkout, accident: str) -> None:
    before = contents(drawn)
    (HARMLESS | PRINTED_ANEW)[accident](drawn)
    found = contents(drawn)
    lost = {path for path in before if found.get(path) != before[path]}
    parts = {Path(path).relative_to(drawn / "results/quick").parts[0] for path in lost if Path(path).suffix in MEASURED}
    assert parts <= ({"tables", "claims", "figures", "report"} if accident in PRINTED_ANEW else set())
    plan = drawn.plan("tables", "figures", "claims", "report_pages", *EVERY_TRIGGER)
    assert plan.empty == (accident in HARMLESS)
    # Without receipts, what figures show is chosen anew, and so extracted.
    shown = {"extract_predictions", "extract_pairs"} if accident == "no receipts" else set()
    assert not (COMPUTES - shown) & set(plan.jobs)
    assert contents(drawn) == found


@pytest.mark.parametrize("force", ["--forceall", "--forcerun=train"])
def test_no_force_trains_or_evaluates_what_is_finished(finished: Checkout, force: str) -> None:
    assert set(finished.plan("tables", "table_ade20k", force).jobs) <= {"tables", "table_ade20k"}


def test_126_adopted_runs_submit_no_job_to_a_cluster(checkout: Checkout) -> None:
    """Without receipts, weights, records and descriptions, and with times of no order."""
    with contextlib.chdir(checkout.folder):
        track = load_track("paper", seeds=[0, 1, 2])
        for run in track.runs.values():
            finish_run(run, "0" * 64)
        for run in runs_of_table(track, "embedding"):
            extract(features_file(track.runs[run]), run)
    assert len(track.runs) >= 126
    set_times(checkout)
    options = ("--workflow-profile", "profiles/slurm", "--config", "track=paper", "seeds=0,1,2")
    assert set(checkout.plan("tables", *options).jobs) == {"table", "tables"}  # on the login node


def test_jobs_stay_as_chosen_when_results_appear_meanwhile(finished: Checkout) -> None:
    """On a cluster each job reads the workflow anew; on one machine another process may publish what a job is for."""
    first, second = runs_of(finished, "construction")[:2]
    scored = runs_of(finished, "ade20k")[0]
    for run in (first, second):
        stash(finished, run)
    stand_in(finished, 'shutil.copytree("stash", run.parent, dirs_exist_ok=True)')  # the other run too
    output = finished.snakemake("--cores", "1", "table_construction")
    assert Plan(output).jobs == {"side_by_side": 1, "train": 2, "table": 1, "table_construction": 1}
    assert finished.plan().empty

    stand_in(finished, command="evaluate")  # there is nothing left for it to do
    job = f"evaluate:track=quick,evaluation=multi_scale_flip,run={scored}"
    anew = (
        "--mode",
        "remote",
        "--force",
        "--nolock",
        "--no-hooks",
        "--ignore-incomplete",
        "--allowed-rules",
        "evaluate",
    )
    finished.snakemake("--cores", "1", "--target-jobs", job, *anew)
    assert (finished / f"results/quick/receipts/multi_scale_flip/{scored}").exists()


@pytest.mark.parametrize("rerun_triggers", [EVERY_TRIGGER, ("--workflow-profile", "none"), ()])
def test_finished_runs_stay_finished_by_what_snakemake_recorded(
    finished: Checkout, rerun_triggers: tuple[str, ...]
) -> None:
    run = runs_of(finished, "construction")[0]
    stash(finished, run)
    stand_in(finished, PUBLISH)
    finished.snakemake("--cores", "1", f"run_{run}")
    assert finished.plan(f"run_{run}", *rerun_triggers).empty
    assert not {"train", "evaluate"} & set(finished.plan("tables", *rerun_triggers).jobs)

    (folder_of(finished, run) / "train.json").unlink()  # under its receipt
    assert (finished / f"results/quick/receipts/train/{run}").exists()
    assert finished.plan("tables", *rerun_triggers).of("train") == {run}


def test_a_refused_job_leaves_what_another_process_publishes_meanwhile(finished: Checkout) -> None:
    run = runs_of(finished, "construction")[0]
    stash(finished, run)
    stand_in(finished, PUBLISH, REFUSE)
    output = finished.snakemake("--cores", "1", f"run_{run}", accept=(1,))
    assert "error: another process trains this run" in output
    assert {path.name for path in folder_of(finished, run).glob("*.json")} >= {"train.json", "single_scale.json"}
    assert finished.plan(f"run_{run}").empty


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: os.truncate(path, 300)])
@pytest.mark.parametrize("name", ["single_scale", "multi_scale_flip"])
@pytest.mark.parametrize("suffix", ["json", "confusion.npz"])
def test_a_lost_or_damaged_evaluation_is_made_again_alone(
    finished: Checkout, name: str, suffix: str, lose: Callable[[Path], None]
) -> None:
    run = next(run for run in sorted(finished.runs()) if (folder_of(finished, run) / f"{name}.json").exists())
    lose(folder_of(finished, run) / f"{name}.{suffix}")
    plan = finished.plan()
    assert plan.of("evaluate") == {run}
    assert f"evaluate {run}: {name}" in plan.output
    assert not plan.of("train")


def test_an_evaluation_of_other_weights_is_made_again(finished: Checkout) -> None:
    run = runs_of(finished, "ade20k")[0]
    path = folder_of(finished, run) / "multi_scale_flip.json"
    path.write_text(path.read_text().replace('"weights_sha256": "0000', '"weights_sha256": "1111'))
    assert finished.plan().of("evaluate") == {run}


def test_the_dry_run_agrees_with_status_and_plan(finished: Checkout) -> None:
    lost, outdated, damaged, broken, trained = sorted(finished.runs())[:5]
    (folder_of(finished, lost) / "train.json").unlink()
    path = folder_of(finished, outdated) / "single_scale.json"
    path.write_text(path.read_text().replace('"weights_sha256": "0000', '"weights_sha256": "1111'))
    os.truncate(folder_of(finished, damaged) / "single_scale.confusion.npz", 100)
    os.truncate(folder_of(finished, broken) / "train.json", 300)
    (folder_of(finished, trained) / "single_scale.json").unlink()
    plan = finished.plan("tables")
    todo = {lost, outdated, damaged, broken, trained}
    assert plan.of("train") == {lost, broken}
    assert plan.of("train") | plan.of("evaluate") == todo
    status = finished.python("-m", "analysis.status")
    assert f"{len(finished.runs()) - len(todo)} finished" in status
    assert {run for run in finished.runs() if run in status} == todo - {lost}
    last = finished.python("-m", "analysis.plan").split("\nall ")[1].split()
    assert [int(last[2]), int(last[4])] == [len(finished.runs()) - len(todo), len(todo)]


def test_a_table_printed_without_a_run_is_printed_anew_once_the_run_is_back(finished: Checkout) -> None:
    """With the times of an archive, and the receipts of the machine where it was trained."""
    run = runs_of(finished, "construction")[0]
    shutil.copytree(finished / "results", finished / "cluster")
    set_times(finished)
    stash(finished, run)
    finished.python("-m", "analysis.tables", "--table", "construction")
    (finished / "results/quick/tables/tables.tex").unlink()
    shutil.copytree(finished / "stash" / run, folder_of(finished, run))
    assert finished.plan().of("print") == {"construction"}
    shutil.copytree(finished / "cluster", finished / "results", dirs_exist_ok=True)  # as rsync -a
    assert finished.plan().empty  # the table came too


def test_a_table_follows_its_runs(finished: Checkout) -> None:
    run = runs_of(finished, "construction")[-1]
    path = folder_of(finished, run) / "train.json"
    about = path.stat()
    path.write_text(path.read_text().replace('"time_s": 0.1', '"time_s": 0.2'))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    track = load_track("quick", experiments=finished / "experiments")
    expected = {name for name, table in track.tables.items() if run in runs_of(finished, name) and name != "embedding"}
    assert finished.plan().of("print") == expected
    (finished / "results/quick/tables/ade20k.csv").write_text("edited")
    assert finished.plan().of("print") == {*expected, "ade20k"}


def test_features_of_other_weights_are_extracted_again(drawn: Checkout) -> None:
    run = runs_of(drawn, "embedding")[0]
    archive = drawn / f"results/quick/features/{run}.npz"
    extract(archive, run, "1" * 64)
    assert drawn.plan("table_embedding").jobs == {"extract_features": 1, "table": 1, "table_embedding": 1}
    os.truncate(archive, 100)
    assert drawn.plan("table_embedding").jobs["extract_features"] == 1


def test_the_log_of_a_run_keeps_earlier_attempts_and_a_failure_shows_its_end(finished: Checkout) -> None:
    run = runs_of(finished, "construction")[0]
    stash(finished, run)
    stand_in(finished, "sys.exit('error: no luck')")
    for attempt in (1, 2):
        output = finished.snakemake("--cores", "1", f"run_{run}", accept=(1,))
        assert "error: no luck" in output
        assert (folder_of(finished, run) / "log").read_text().count("line of an attempt") == attempt


def test_a_damaged_result_of_training_is_told_with_its_remedy_and_not_trained_over(finished: Checkout) -> None:
    run = runs_of(finished, "positive_weights")[0]
    path = folder_of(finished, run) / "train.json"
    os.truncate(path, 300)
    before = {name: text for name, text in contents(finished).items() if "/tables/" not in name}
    output = finished.snakemake("--cores", "1", "table_positive_weights", accept=(1,))
    end = output.split("What failed, and why")[1]
    assert f"results/quick/runs/{run}/train.json" in end
    assert "put a copy of it back; without one, delete it to train anew" in end
    assert {name: text for name, text in contents(finished).items() if name in before} == before
    assert "–" in (finished / "results/quick/tables/positive_weights.md").read_text()


def test_other_training_code_is_no_reason_to_evaluate(finished: Checkout) -> None:
    """Scores that belong to the weights are kept while retraining fails."""
    run = runs_of(finished, "ade20k")[0]
    before = contents(finished)
    stand_in(finished, "sys.exit('error: no luck')")
    finished.snakemake("--cores", "1", f"run_{run}", "--config", f"retrain={run}", accept=(1,))
    found = contents(finished)
    assert {path for path in before if found.get(path) != before[path]} <= {str(folder_of(finished, run) / "log")}
    assert finished.plan(f"run_{run}").empty


def test_a_receipt_lists_what_sha256sum_checks(tmp_path: Path) -> None:
    made, receipt = tmp_path / "a file", tmp_path / "receipts/made"
    made.write_text("content")
    assert receipts.main([str(receipt), str(made)]) == 0
    assert re.fullmatch(rf"[0-9a-f]{{64}}  {made}\n", receipt.read_text())
    assert receipts.vouches(receipt, [made])
    assert not receipts.vouches(receipt, [made, receipt])
    made.write_text("other")
    assert not receipts.vouches(receipt, [made])
    made.unlink()
    assert not receipts.vouches(receipt, [made])


def test_what_changes_while_a_job_runs_is_not_vouched_for(tmp_path: Path) -> None:
    made, read, receipt = tmp_path / "made", tmp_path / "read", tmp_path / "receipts/made"
    files = [str(receipt), str(made), "--", str(read)]
    for text in ("one", "two"):  # the second job ends as it began
        read.write_text(text)
        receipts.main(["--before", *files])
        made.write_text("from what was read")
        read.write_text("two")
        receipts.main(files)
        assert receipts.vouches(receipt, [made, read]) == (text == "two")
    assert [path.name for path in receipt.parent.iterdir()] == [receipt.name]


def test_a_job_that_made_nothing_gets_no_receipt(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert receipts.main([str(tmp_path / "receipt"), str(tmp_path / "made")]) == 2
    assert f"{tmp_path / 'made'}: the job has ended, but this file is not there" in capsys.readouterr().err
    assert not (tmp_path / "receipt").exists()


def test_what_a_message_advises_of_a_damaged_training_is_no_deletion_alone(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"run": "a"}))
    with pytest.raises(UserError, match="put a copy of it back"):
        read_result(path, TrainResult)


def test_the_check_names_each_finding_and_what_mends_it(drawn: Checkout) -> None:
    assert drawn.python("-m", "analysis.check").endswith("; 0 findings\n")
    results, runs = drawn / "results/quick", sorted(drawn.runs())
    shutil.copytree(results / "runs", drawn / "results/archive/quick")
    lost, cut, outdated, counts, edited, curves, left = runs[:7]
    again = "`snakemake run_{} --config track=quick seeds=0` makes it again"
    (results / f"runs/{lost}/train.json").unlink()
    os.truncate(results / f"runs/{cut}/single_scale.json", 300)
    path = results / f"runs/{outdated}/single_scale.json"
    path.write_text(path.read_text().replace('"weights_sha256": "0000', '"weights_sha256": "1111'))
    os.truncate(results / f"runs/{counts}/single_scale.confusion.npz", 100)
    drawn.replace(f"results/quick/runs/{edited}/spec.yaml", "\nseed: 0", "\nseed: 7")
    (results / f"runs/{curves}/history.jsonl").unlink()
    (results / f"work/{left}").mkdir(parents=True)
    (results / f"work/{left}/iter_5.pth").write_text("")
    features = next(results.glob("features/*.npz"))
    extract(features, features.stem, "1" * 64)
    (results / "tables/ade20k.csv").write_text("edited")
    found = drawn.python("-m", "analysis.check", accept=(1,)).splitlines()
    expected = {
        f"runs/{lost}/train.json: not there; {again.format(lost)}",
        f"runs/{cut}/single_scale.json: .*{again.format(cut)}",
        f"runs/{outdated}/single_scale.json: of other weights than train.json; {again.format(outdated)}",
        f"runs/{counts}/single_scale.confusion.npz: .*{again.format(counts)}",
        f"runs/{edited}/spec.yaml: .*{again.format(edited)}",
        f"runs/{curves}/history.jsonl: not there; put a copy of it back",
        f"work/{left}/iter_5.pth: a checkpoint of a training that is finished; delete it",
        f"features/{features.name}: not of the weights of train.json; `snakemake table_embedding`",
        "receipts/table/ade20k: results/quick/tables/ade20k.csv has changed; the workflow makes it again",
    }
    for line in expected:
        assert any(re.match(f"results/quick/{line}", finding) for finding in found), line
    archived = next((drawn / "results/archive/quick").glob("*/train.json"))
    archived.write_text(archived.read_text().replace('"run": "', '"run": "x'))
    found = drawn.python("-m", "analysis.check", "--source", "archive", accept=(1,))
    assert f"`git restore results/archive/quick/{archived.parent.name}` puts it back" in found
    assert found.endswith("1 findings\n")
