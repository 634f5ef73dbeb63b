"""plan, status, runs and help: what they say, and that they only read."""

import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from samples import run_of, write_progress

from analysis import help as help_command
from analysis import plan, runs, status
from analysis.plan import Cost, estimate, memory_class, rehearsed_costs
from analysis.results import collect_runs
from pne.engine.command import DivergenceError
from pne.engine.hooks import Progress
from pne.engine.provenance import code_sha256
from pne.errors import UserError
from pne.rehearse.record import group_runs
from pne.spec import Run, load_track, write_spec

COMMANDS = (plan, status, runs)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def plan_of(track, **options) -> dict[str, dict]:
    frame = collect_runs(track.runs.values(), **options)
    costs = estimate(track, frame, {})
    return {row["table"]: row for row in plan.plan(track, status.summarise(frame), costs).to_dict("records")}


def test_the_plan_counts_runs_per_table_and_each_once_in_all(quick):
    found = plan_of(quick)
    rows = {name: table.rows.values() for name, table in quick.tables.items() if table.available}
    expected = {name: len({run for row in of for run in row.runs.values()}) for name, of in rows.items()}
    assert {name: row["runs"] for name, row in found.items()} == expected | {"all": len(quick.runs)}
    assert found["cityscapes"]["shared"] >= 2  # DeepLabV3 with ResNet-101 stands in contrast_form too
    assert found["all"]["to do"] == len(quick.runs)


def test_the_plan_counts_finished_and_stale_and_hours(quick, finish):
    finish(run_of(quick, "positive_weights", "without"), time_s=3.6, earlier_code_sha256=["0" * 64])
    finish(run_of(quick, "positive_weights", "logit"), time_s=7.2, code_sha256="0" * 64)
    found = plan_of(quick, code_sha256=code_sha256)
    table = found["positive_weights"]
    assert (table["finished"], table["stale"], table["to do"]) == (2, 2, 1)
    run = run_of(quick, "positive_weights", "softmax")
    # The third run is of the same model and loss: the median of the two, 5.4 s an iteration.
    assert float(table["hours to do"]) == pytest.approx(run.iterations * 5.4 / 3600, abs=0.006)
    assert found["cityscapes"]["hours to do"] == "?"


def test_hours_come_from_the_runs_then_rehearsals_then_the_paper(tmp_path, in_repository, finish):
    paper = load_track("paper", results=tmp_path)
    rows = paper.tables["cityscapes"].rows
    base, pne = rows["deeplabv3"].runs[0], rows["deeplabv3_pne"].runs[0]

    def cost(run: str, rehearsals: Mapping[str, Cost]) -> Cost:
        return estimate(paper, collect_runs(paper.runs.values()), rehearsals)[run]

    assert cost(base, {}) == Cost(1.92, "the paper")
    assert cost(pne, {}).time_s == 2.43
    rehearsals = {base: Cost(0.5, "H100", 9000.0)}
    assert cost(base, rehearsals) == Cost(0.5, "rehearsals on H100", 9000.0)
    finish(paper.runs[base], time_s=0.4)
    assert cost(base, rehearsals) == Cost(0.4, "finished runs on made up")
    finish(paper.runs[base], time_s=0.4, memory_kind="cuda_allocated", peak_memory_mib=9500.0)
    assert cost(base, {}).gpu_memory_mib == 9500.0
    finish(paper.runs[base], time_s=0.4, world_size=4)
    assert cost(base, {}).time_s == pytest.approx(1.6)  # device seconds
    # Printed times are of the paper's data and machine; a stand-in track takes none of them.
    quick = load_track("quick", results=tmp_path)
    assert estimate(quick, collect_runs(quick.runs.values()), {}) == {}


@pytest.fixture
def rehearsed(finish):
    """Return a function that writes what a rehearsal of a run leaves."""

    def write(track, run: Run, memory_mib: float, folder: str = "rehearsals", **changes: object) -> Path:
        where = run.runtime.model_copy(update={"results": f"{run.runtime.results}/{folder}"})
        config = track.config(run.run)
        run = run.model_copy(update={"run": f"{run.run}-rehearsal", "runtime": where, "evaluations": []})
        write_spec(run, config)
        finish(run, **{"time_s": 0.25, "peak_memory_mib": memory_mib, "memory_kind": "cuda_allocated", **changes})
        return run.directory / "train.json"

    return write


def test_rehearsals_are_read_for_every_run_they_stand_for_and_checked(quick, rehearsed, tmp_path):
    folder = Path(next(iter(quick.runs.values())).runtime.results) / "rehearsals"
    assert rehearsed_costs(folder, quick) == {}
    many, one, four, reduced = sorted(group_runs(quick), key=len, reverse=True)[:4]
    rehearsed(quick, many[0], 900.0)
    rehearsed(quick, one[0], 900.0, memory_kind="resident_set")
    path = rehearsed(quick, four[0], 500.0, world_size=4)
    rehearsed(quick, reduced[0], 500.0, folder="rehearsals/reduced")
    assert rehearsed_costs(folder, quick) == {
        **dict.fromkeys((run.run for run in many), Cost(0.25, "made up", 900.0)),
        **dict.fromkeys((run.run for run in one), Cost(0.25, "made up")),
        **dict.fromkeys((run.run for run in four), Cost(1.0, "made up", 500.0)),
    }
    assert len(many) > 1
    path.write_text("{}")
    with pytest.raises(UserError, match=r"train\.json: .* holds no TrainResult"):
        rehearsed_costs(folder, quick)


@pytest.mark.parametrize(
    ("peak_gib", "size"), [(6.8, 8), (6.9, 11), (13, 16), (21, 24), (70, 80), (100, 141), (128, None)]
)
def test_memory_class_leaves_a_tenth_and_half_a_gib(peak_gib, size):
    assert memory_class(peak_gib * 1024) == size


def test_the_plan_names_the_gpu_that_holds_the_largest_run(rehearsed, in_repository, tmp_path, capsys):
    plan.main(["--track", "paper", "--results", str(tmp_path)])
    text = capsys.readouterr().out
    assert "GPU GiB" not in text
    assert "What memory a GPU needs is not known until runs were rehearsed on one." in text
    paper = load_track("paper", results=tmp_path)
    for row in paper.tables["positive_weights"].rows.values():
        rehearsed(paper, paper.runs[row.runs[0]], 30 * 1024.0)
    plan.main(["--track", "paper", "--results", str(tmp_path)])
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["table"][-2:] == ["GPU", "GiB"]
    assert lines["positive_weights"][-1] == "40"  # 30 GiB, a tenth for the allocator and the driver's context
    assert lines["construction"][-1] == "40+"
    assert lines["coco_stuff"][-1] == "?"
    assert lines["all"][-1] == "40+"


def test_status_tells_the_states_apart(quick, finish):
    now = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    done, half, running, failed, stopped = list(quick.runs)[:5]
    finish(quick.runs[done])
    finish(quick.runs[half])
    (quick.runs[half].directory / "multi_scale_flip.json").unlink()
    about = {"iteration": 40, "iterations": 100, "updated": now.isoformat(), "host": socket.gethostname()}
    write_progress(quick.runs[running], state="running", pid=os.getpid(), eta_s=202.0, **about)
    write_progress(quick.runs[failed], state="failed", error="loss_ce is nan", **about)
    write_progress(quick.runs[stopped], state="interrupted", **about)
    frame = collect_runs(quick.runs.values(), now=now + timedelta(seconds=2))
    text = status.describe(status.summarise(frame), {name: run.iterations for name, run in quick.runs.items()})
    total = quick.runs[running].iterations
    head = f"{len(quick.runs)} runs: 1 finished, 1 trained, not fully evaluated, 1 running, 1 stopped, 1 failed"
    assert head in text
    lines = text.splitlines()
    assert f"  {half}  multi_scale_flip" in lines
    assert f"  {running}  iteration 40 of {total}, 3 min 20 s left" in lines
    assert f"  {failed}  iteration 40 of {total}: loss_ce is nan" in lines
    assert f"  {stopped}  iteration 40 of {total}" in lines


def test_the_plan_says_what_seeds_can_detect(tmp_path, options, score, capsys):
    options += ["--seeds", "0,1,2,3"]
    plan.main(options)
    text = capsys.readouterr().out
    assert "3 seeds 3.26 (5.67), 4 seeds 2.13 (3.12), 5 seeds 1.68 (2.29), 8 seeds 1.16 (1.45) standard" in text
    assert "not known until a row and its baseline have finished two seeds each" in text
    track = load_track("quick", results=tmp_path, seeds=[0, 1, 2, 3])
    rows = {"base_r50": (30, 31, 35), "pne_r50": (31, 33, 36.9), "asymmetric_r50": (30, 34, 36)}
    score(track, "contrast_form", rows)
    deviation = np.sqrt((np.var([1, 2, 1.9], ddof=1) + np.var([0, 3, 1], ddof=1)) / 2)
    found, rows = plan.paired_deviation(track, collect_runs(track.runs.values()))
    assert (found, rows) == (pytest.approx(deviation), 2)  # the runs stand in several tables and count once
    plan.main(options)
    text = capsys.readouterr().out
    assert f"8 seeds {1.157 * deviation:.1f}" in text
    assert f"a standard deviation of {deviation:.2f} points, pooled over 2 rows" in text


def test_status_tells_a_failed_evaluation_and_the_plan_does_not_train_it_again(quick, finish, options, capsys):
    name, run = next((name, run) for name, run in quick.runs.items() if len(run.evaluations) > 1)
    finish(run, time_s=3.6)
    (run.directory / "multi_scale_flip.json").unlink()
    report = {"state": "failed", "error": "final.pth: the final weights are missing", "iteration": run.iterations}
    write_progress(run, "multi_scale_flip.progress.json", **report)
    assert status.main(options) == 0
    text = capsys.readouterr().out
    assert "1 failed" in text
    assert f"{name}  trained, but not multi_scale_flip: final.pth: the final weights are missing\n" in text
    row = plan_of(replace(quick, runs={name: run}, tables={}))["all"]
    assert (row["finished"], row["to do"], row["hours to do"]) == (0, 1, "0")


def test_status_names_the_iteration_of_a_failure_once(quick, options, capsys):
    run = next(iter(quick.runs.values()))
    progress = Progress(run.work_directory / "progress.json", run.run, run.iterations)
    progress.update(iteration=0)
    progress.fail(DivergenceError(3, "the loss is nan"))
    assert status.main(options) == 0
    assert f"{run.run}  iteration 3 of {run.iterations}: the loss is nan\n" in capsys.readouterr().out


def test_runs_list_every_place_of_a_run(quick, capsys, options):
    assert runs.main(options) == 0
    lines = {run: places for run, *places in map(str.split, capsys.readouterr().out.splitlines())}
    assert list(lines) == list(quick.runs)
    run = quick.tables["contrast_form"].rows["pne_r50"].runs[0]
    assert {"contrast_form.pne_r50", "construction.pne_ias_cn", "hyperparameters.alpha_1_3"} <= set(lines[run])
    assert runs.main([*options, "--table", "ade20k"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_help_names_every_table_and_track(in_repository, capsys):
    assert help_command.main([]) == 0
    text = capsys.readouterr().out
    for kind in ("tables", "tracks"):
        for path in (in_repository / "experiments" / kind).glob("*.yaml"):
            assert f"  {path.stem} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_reading_writes_nothing(command, quick, finish, options, tmp_path, capsys):
    assert command.main(["--track", "quick", "--results", str(tmp_path / "none")]) == 0
    assert not (tmp_path / "none").exists()
    for run in list(quick.runs.values())[:3]:
        finish(run)
    before = files(tmp_path)
    assert command.main(options) == 0
    assert files(tmp_path) == before
    assert capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_track_is_one_clear_error(command, in_repository, capsys):
    assert command.main(["--track", "quik"]) == 2
    assert "did you mean quick?" in capsys.readouterr().err


def test_the_benchmark_times_every_command(in_repository, benchmark_module, capsys):
    benchmark_module.main(["--track", "quick", "--seeds", "0", "--images", "5"])
    lines = capsys.readouterr().out.splitlines()
    timed = [line.split(":")[0] for line in lines[-4:]]
    assert timed == ["analysis.tables", "analysis.claims", "analysis.plan", "analysis.status"]
