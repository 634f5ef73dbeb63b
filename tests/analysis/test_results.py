"""Collecting results and progress: every state a run can be in."""

import json
import os
import socket
from datetime import datetime, timedelta, timezone

import pytest
from samples import write_progress

from analysis.results import COLUMNS, collect_runs, last_error, read_progress

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def run(quick):
    return next(run for run in quick.runs.values() if run.contrast is not None)


def test_one_row_per_run_and_evaluation(quick, run, finish):
    finish(run, miou=33.25)
    frame = collect_runs(quick.runs.values(), code_sha256=lambda run: "0" * 64)
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == sum(len(run.evaluations) for run in quick.runs.values())
    found = frame[frame["run"] == run.run]
    assert set(found["evaluation"]) == set(run.evaluations)
    assert set(found["state"]) == {"finished"}
    assert (found["miou"] == 33.25).all()
    assert found["stale"].all()  # made up by today's code, asked about another
    assert found["class_iou"].iloc[0].keys() == {"class_0", "class_1", "class_2", "class_3"}
    assert set(frame.loc[frame["run"] != run.run, "state"]) == {"missing"}


def test_no_runs_give_an_empty_frame():
    assert list(collect_runs([]).columns) == list(COLUMNS)


def test_a_missing_evaluation_is_missing_alone(run, finish):
    finish(run)
    (run.directory / "multi_scale_flip.json").unlink()
    frame = collect_runs([run]).set_index("evaluation")
    assert frame.loc["single_scale", "state"] == "finished"
    assert frame.loc["multi_scale_flip", "state"] == "missing"
    assert frame.loc["multi_scale_flip", "time_s"] > 0  # training is there


def test_an_evaluation_tells_its_own_progress_since_the_training(run, finish):
    finish(run)
    (run.directory / "multi_scale_flip.json").unlink()
    write_progress(run, state="finished")  # of training
    log = run.directory / "multi_scale_flip.log"
    log.write_text("12:00:00 something\nerror: final.pth: the final weights are missing; train the run again\n")

    def found() -> tuple:
        return tuple(collect_runs([run]).set_index("evaluation").loc["multi_scale_flip", ["state", "error"]])

    assert found() == ("failed", "final.pth: the final weights are missing; train the run again")
    path = run.work_directory / "multi_scale_flip.progress.json"
    about = {"host": socket.gethostname(), "pid": os.getpid(), "updated": datetime.now(timezone.utc).isoformat()}
    for state, expected in (("evaluating", "running"), ("interrupted", "stopped"), ("finished", "missing")):
        write_progress(run, path.name, state=state, **about)
        assert found()[0] == expected
    write_progress(run, path.name, state="failed", error="no such folder", **about)
    assert found() == ("failed", "no such folder")
    for earlier, expected in ((log, "failed"), (path, "missing")):
        os.utime(earlier, (1e9, 1e9))
        assert found()[0] == expected


def test_without_a_training_result_nothing_is_finished(run, finish):
    finish(run)
    (run.directory / "train.json").unlink()
    frame = collect_runs([run])
    assert set(frame["state"]) == {"missing"}
    assert frame["miou"].isna().all()


def test_results_of_another_version_of_the_schema_are_failures_with_the_reason(run, finish):
    finish(run)
    path = run.directory / "train.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"invented": 1}))
    frame = collect_runs([run])
    assert set(frame["state"]) == {"failed"}
    assert "train.json: invented" in frame["error"].iloc[0]


def test_running_here_means_a_living_process(run):
    about = {"host": socket.gethostname(), "updated": NOW.isoformat(), "iteration": 40, "iterations": 100, "eta_s": 60}
    write_progress(run, state="running", pid=os.getpid(), **about)
    found = read_progress(run, now=NOW + timedelta(seconds=10))
    assert (found.state, found.iteration, found.eta_s) == ("running", 40, 50.0)
    write_progress(run, state="running", pid=2**22 + 1, **about)  # beyond the largest process id
    assert read_progress(run, now=NOW).state == "stopped"


def test_running_elsewhere_means_a_recent_report(run):
    about = {"host": "another", "pid": 1, "updated": NOW.isoformat(), "iteration": 40, "iterations": 100, "time_s": 1.0}
    write_progress(run, state="running", **about)
    assert read_progress(run, now=NOW + timedelta(minutes=5)).state == "running"
    assert read_progress(run, now=NOW + timedelta(hours=1)).state == "stopped"
    write_progress(run, state="running", **(about | {"time_s": 60.0}))  # slow, so it reports seldom
    assert read_progress(run, now=NOW + timedelta(hours=1)).state == "running"


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"state": "running", "updated": "yesterday"}'])
def test_an_unreadable_report_is_no_crash(run, content):
    run.work_directory.mkdir(parents=True)
    (run.work_directory / "progress.json").write_text(content)
    assert read_progress(run, now=NOW).state in ("missing", "stopped")


def test_a_run_that_failed_before_it_could_report_is_read_from_its_log(run):
    run.directory.mkdir(parents=True)
    log = run.directory / "log"
    log.write_text(
        'Traceback (most recent call last):\n  File "x.py", line 1\nModuleNotFoundError: No module named x\n'
    )
    assert read_progress(run).error == "ModuleNotFoundError: No module named x"
    log.write_text("iteration 10 ...\nerror: data/street_city: no such folder; run the target data\nbye\n")
    assert last_error(log) == "data/street_city: no such folder; run the target data"
    log.write_text("all is well; errors: none\n")
    assert read_progress(run).state == "missing"
    assert last_error(run.directory / "no_log") is None
