"""Rehearsals: which runs one stands for, what it changes, what it leaves behind, and that all paper runs go through."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from paper_data import write_paper_data
from PIL import Image
from tiny_runs import draw_images, environment, run_config

from analysis.plan import Cost, rehearsed_costs
from pne.datasets.files import read_size
from pne.engine.runner import register
from pne.errors import UserError
from pne.rehearse.__main__ import chosen, largest_images, main, parser, reason, scale_images, shortened
from pne.rehearse.record import group_runs, read_rehearsal, read_rehearsals
from pne.spec import load_track


@pytest.fixture(scope="module")
def track(repository: Path):
    return load_track("paper", experiments=repository / "experiments", seeds=[0, 1])


def flat(value, prefix=""):
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, f"{prefix}.{key}".lstrip(".")).items()}
    return {prefix: value}


def changes(track, run: str, *options: str) -> dict:
    """Leaves of the config that a rehearsal changes: key -> (declared, rehearsed)."""
    args = parser().parse_args(["--track", "paper", *options])
    before = flat(track.config(run).to_dict())
    after = flat(shortened([track.runs[run]], track.config(run), args)[1])
    changed = {key for key, _ in before.items() ^ after.items()}
    return {key: (before.get(key), after.get(key)) for key in changed}


def run_named(track, start: str) -> str:
    return next(run for run in track.runs if run.startswith(start))


def test_runs_of_a_group_differ_in_weight_temperature_and_seed_alone(track) -> None:
    expected: dict[str, list[str]] = {}
    for name, run in track.runs.items():
        cost = run.model_dump(include={"dataset", "model", "schedule", "precision", "batch_size", "contrast"})
        if run.contrast:
            cost["contrast"] |= {"weight": 1, "options": {**run.contrast["options"], "temperature": 1}}
        expected.setdefault(json.dumps(cost), []).append(name)
    assert [[run.run for run in group] for group in group_runs(track)] == list(expected.values())


def test_a_rehearsal_changes_length_and_initial_weights_alone(track) -> None:
    run = run_named(track, "cityscapes-deeplabv3_r101-pne")
    length = {"train_cfg.max_iters", "train_cfg.val_interval"}
    assert set(changes(track, run, "--declared-weights")) == length
    weights = {f"model.backbone.init_cfg{key}" for key in ("", ".type", ".checkpoint")}
    assert set(changes(track, run)) == length | weights


def test_a_contrast_that_starts_late_is_rehearsed_at_work(track) -> None:
    run = run_named(track, "coco_stuff-ocrnet_w48-cipc")
    assert changes(track, run)["model.decode_head.1.contrast.start"] == (5000, 0)
    spec, _ = shortened([track.runs[run]], track.config(run), parser().parse_args(["--track", "paper"]))
    assert (spec.contrast["start"], track.runs[run].contrast["start"]) == (0, 5000)


def test_a_crop_scales_every_size_by_the_same_factor(track) -> None:
    found = changes(track, run_named(track, "cityscapes-ocrnet_w48-base"), "--crop", "64", "--batch-size", "2")
    pipeline = "train_dataloader.dataset.dataset.pipeline"
    sizes = {key: pair for key, pair in found.items() if isinstance(pair[1], int) and not key.startswith("train_cfg")}
    assert sizes.pop("train_dataloader.batch_size") == (8, 2)
    places = ["model.data_preprocessor.size", f"{pipeline}.2.scale", f"{pipeline}.3.crop_size"]
    places += [f"{loader}_dataloader.dataset.pipeline.1.scale" for loader in ("val", "test")]
    assert sizes.keys() == {f"{place}.{axis}" for place in places for axis in (0, 1)}
    assert all(declared == 8 * rehearsed for declared, rehearsed in sizes.values())


def test_sliding_windows_are_scaled_too(track) -> None:
    run = run_named(track, "ade20k-ocrnet_w48-base")
    config = track.config(run).to_dict()
    config["model"]["test_cfg"] = {"mode": "slide", "crop_size": (512, 512), "stride": (341, 341)}
    scale_images(config, 64)
    assert config["model"]["test_cfg"] == {"mode": "slide", "crop_size": (64, 64), "stride": (43, 43)}


# --- the command itself, on the quick track ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick(repository: Path, street: Path):
    return load_track("quick", experiments=repository / "experiments", data_root=street.parent)


@pytest.fixture(scope="module")
def rehearse(repository: Path, street: Path) -> Callable[..., int]:
    """Return a function that rehearses on the quick track; it returns the exit status."""
    fixed = ["--track", "quick", "--iterations", "2", "--runtime", "device=cpu", "workers=1", "threads=1"]
    fixed += ["--experiments", str(repository / "experiments"), "--data-root", str(street.parent)]
    return lambda results, *arguments: main([*fixed, "--results", str(results), *arguments])


@pytest.fixture(scope="module")
def sweep(quick) -> list[str]:
    """The runs of the sweep of temperatures that bear a contrast."""
    return [
        run
        for row in quick.tables["hyperparameters"].rows.values()
        for run in row.runs.values()
        if quick.runs[run].contrast and quick.runs[run].contrast["options"].keys() == {"temperature"}
    ]


@pytest.fixture(scope="module")
def rehearsed(rehearse: Callable, quick, sweep: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a rehearsal of one of the sweep left, after another, of a run without data, had failed."""
    results = tmp_path_factory.mktemp("results")
    assert rehearse(results, "--run", run_named(quick, LOST), sweep[0]) == 1
    (folder,) = (results / "quick/rehearsals/runs").iterdir()
    return folder


LOST = "coco_stuff-deeplabv3_r101-base"  # its data set was not drawn


def test_one_rehearsal_speaks_for_all_runs_of_a_group(rehearsed: Path, quick, sweep: list[str]) -> None:
    (group,) = chosen(quick, [sweep[0]], None)
    assert set(sweep) < {run.run for run in group}
    record = read_rehearsal(rehearsed)
    trained = record.trained
    assert trained.run == rehearsed.name == f"{group[0].run}-rehearsal"
    assert (trained.iterations, trained.provenance.micro_batch) == (2, group[0].batch_size)
    assert set(record.scored) == {name for run in group for name in run.evaluations}
    assert {result.images for result in record.scored.values()} == {2}
    assert all(result.peak_memory_mib > 100 for result in record.scored.values())
    assert trained.losses["loss_contrast"] > 0
    assert record.peak_memory_mib >= trained.peak_memory_mib > 100
    assert trained.memory_kind == "resident_set"
    cost = Cost(trained.time_s, trained.provenance.device)
    assert rehearsed_costs(rehearsed.parents[1], quick) == dict.fromkeys((run.run for run in group), cost)
    # Nothing of the runs themselves is touched, and no weights stay.
    assert {path.name for path in rehearsed.parents[2].iterdir()} == {"rehearsals"}
    assert not [*rehearsed.parents[2].rglob("*.pth"), *rehearsed.parents[2].glob("rehearsals/work/*")]


def test_the_same_rehearsal_is_not_repeated_unless_asked(rehearse, rehearsed: Path, sweep, capsys) -> None:
    results, before = rehearsed.parents[3], (rehearsed / "train.json").read_text()
    assert rehearse(results, "--run", sweep[-1]) == 0
    out = capsys.readouterr().out
    assert f"rehearsed already, {read_rehearsal(rehearsed)}" in out
    assert "python -m analysis.plan --track quick" in out
    assert (rehearsed / "train.json").read_text() == before
    assert rehearse(results, "--run", sweep[-1], "--again") == 0
    assert (rehearsed / "train.json").read_text() != before


def test_a_reduced_rehearsal_is_kept_from_the_plan_and_a_failure_leaves_it_alone(
    rehearse, street: Path, quick, sweep, tmp_path: Path, capsys
) -> None:
    lost = run_named(quick, LOST)
    assert rehearse(tmp_path, "--run", lost, sweep[0], "--crop", "32", "--batch-size", "2") == 1
    folder = tmp_path / "quick/rehearsals"
    assert rehearsed_costs(folder, quick) == {}
    (directory,) = (folder / "reduced/runs").iterdir()
    assert read_rehearsal(directory).trained.provenance.micro_batch == 2
    out = capsys.readouterr().out
    assert "Crop or batch were reduced" in out
    assert "analysis.plan" not in out
    assert f"FAILED {lost}: {street.parent / 'street_stuff'}: no such folder" in out


def test_a_failed_training_is_told_by_its_last_error_or_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ends = {"error: out of memory\nleaving\n": "out of memory", "going on\nleaving\n": "leaving", "": "exit status 3"}
    for text, expected in ends.items():
        log.write_text(text)
        assert reason(3, log) == expected
    assert reason(-9, log) == "killed by SIGKILL; the machine may have run out of memory"


def test_a_signal_ends_it_soon_and_leaves_nothing_half_done(repository: Path, street: Path, sweep, tmp_path) -> None:
    command = [sys.executable, "-m", "pne.rehearse", "--track", "quick", "--iterations", "100000", "--run", sweep[0]]
    command += ["--data-root", str(street.parent), "--results", str(tmp_path), "--runtime", "device=cpu", "workers=1"]
    with subprocess.Popen(command, cwd=repository, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        while not any("100000 iterations" in path.read_text() for path in tmp_path.rglob("log")):
            assert process.poll() is None
            time.sleep(0.1)
        process.terminate()
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 75
    assert "interrupted" in out
    assert not [*tmp_path.rglob("train.json"), *tmp_path.glob("quick/rehearsals/work/*")]


def test_tables_choose_whole_groups(track) -> None:
    assert [len(group) for group in chosen(track, None, ["positive_weights"])] == [30, 2, 2]  # two sweeps, two seeds
    assert chosen(track, None, None) == group_runs(track)
    with pytest.raises(UserError, match="no table 'positiv_weights'; did you mean positive_weights"):
        chosen(track, None, ["positiv_weights"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--run", "cityscapes-nonsense"), "track quick: no run 'cityscapes-nonsense'"),
        (("--runtime", "micro_batch=0"), "runtime: micro_batch: "),
    ],
)
def test_an_unknown_run_or_setting_is_one_clear_error(rehearse, tmp_path: Path, error_of, options, message) -> None:
    assert message in error_of(lambda words: rehearse(tmp_path, *words), *options)
    assert not list(tmp_path.iterdir())


# --- the images that it scores --------------------------------------------------------------------------------------

SIZES = [(40, 60), (44, 60), (60, 44), (20, 20), (48, 64), (44, 60)]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = draw_images(tmp_path / "camvid", train=2, test=len(SIZES))
    for number, size in enumerate(SIZES):
        Image.fromarray(np.zeros((*size, 3), np.uint8)).save(root / f"img_dir/test/{number:03d}.jpg")
        Image.fromarray(np.zeros(size, np.uint8)).save(root / f"ann_dir/test/{number:03d}.png")
    return root


def scored_config(data: Path, **changes: object) -> dict:
    register({})
    return {**run_config(data)["test_dataloader"]["dataset"], **changes}


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [4]), (2, [1, 4]), (3, [1, 2, 4]), (4, [1, 2, 4, 5]), (9, [0, 1, 2, 3, 4, 5])]
)
def test_the_largest_are_taken_and_of_equal_ones_the_earlier(photos: Path, number: int, expected: list[int]) -> None:
    assert largest_images(scored_config(photos), number) == expected


def test_headers_are_read_and_no_image_is_decoded(photos: Path) -> None:
    path = photos / "img_dir/test/004.jpg"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError):
        read_size(path, decode=True)
    assert largest_images(scored_config(photos, cache_data=True), 1) == [4]
    path.write_text("no picture")
    with pytest.raises(UserError, match=r"004\.jpg: cannot be read as an image"):
        largest_images(scored_config(photos), 1)


# --- all runs of the paper --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_run_of_the_paper_rehearses_on_a_cpu(shared: Path, repository: Path, tmp_path: Path) -> None:
    """64-pixel crops, two iterations, real and drawn images in the original formats; prints how long each took."""
    data = write_paper_data(tmp_path / "data", shared)
    command = [sys.executable, "-m", "pne.rehearse", "--track", "paper", "--iterations", "2", "--crop", "64"]
    command += ["--runtime", "device=cpu", "workers=1", f"threads={min(2, os.cpu_count() or 1)}"]
    command += ["--data-root", str(data), "--results", str(tmp_path / "results")]
    assert subprocess.run(command, cwd=repository, check=False).returncode == 0
    folder = tmp_path / "results/paper/rehearsals/reduced"
    track = load_track("paper", experiments=repository / "experiments")
    found = read_rehearsals(folder, track)
    assert set(found) == set(track.runs)
    assert all(set(record.scored) >= {"single_scale"} for record in found.values())
