"""Rehearsals: which runs one stands for, what it changes, what it leaves behind, and that all paper runs go through."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from mmengine.registry import init_default_scope
from paper_data import write_paper_data
from PIL import Image
from tiny_runs import draw_images, run_config

from analysis.plan import Cost, read_rehearsals
from pne.datasets.files import read_size
from pne.datasets.synthetic_street.__main__ import write as draw_street
from pne.engine.runner import register
from pne.errors import UserError
from pne.rehearse.__main__ import choose, largest_images, main, scale_images, shortened
from pne.rehearse.record import Request, contrasts, group_runs, memory_class, read_rehearsal, summarise
from pne.spec import load_track


@pytest.fixture(scope="module")
def track(repository: Path):
    return load_track("paper", experiments=repository / "experiments", seeds=[0, 1])


def flat(value, prefix=""):
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, f"{prefix}.{key}".lstrip(".")).items()}
    if isinstance(value, list | tuple):
        return {k: v for i, item in enumerate(value) for k, v in flat(item, f"{prefix}.{i}").items()}
    return {prefix: value}


def request(**settings) -> Request:
    return Request(
        **{
            "runs": ["x"],
            "config_sha256": "0",
            "evaluations": ["single_scale"],
            "iterations": 20,
            "images": 2,
            "device": "cpu",
            "gpus": 1,
            "workers": 0,
            "threads": 1,
            "initial_weights": "random",
            **settings,
        }
    )


def changes(track, run: str, **settings) -> dict:
    """Leaves of the config that a rehearsal changes: key -> (declared, rehearsed)."""
    config = track.config(run).to_dict()
    before, after = flat(config), flat(shortened(track.runs[run], config, "elsewhere", request(**settings))[1])
    return {
        key: (before.get(key), after.get(key)) for key in before | after if before.get(key, "") != after.get(key, "")
    }


def run_named(track, start: str) -> str:
    return next(run for run in track.runs if run.startswith(start))


def test_every_run_is_in_exactly_one_group(track) -> None:
    counts = Counter(run for group in group_runs(track) for run in group.stands_for)
    assert counts == Counter(list(track.runs))


def test_runs_of_a_group_differ_in_weight_temperature_and_seed_alone(track) -> None:
    def cost(run):
        contrast = run.contrast and {
            **run.contrast,
            "weight": None,
            "options": {key: value for key, value in run.contrast["options"].items() if key != "temperature"},
        }
        return json.dumps([run.dataset, run.model, run.schedule, run.precision, run.batch_size, contrast])

    groups = group_runs(track)
    for group in groups:
        assert group.stands_for[0] == group.run.run
        assert len({cost(track.runs[run]) for run in group.stands_for}) == 1
    assert len(groups) == len({cost(run) for run in track.runs.values()})


def test_the_sweeps_of_temperature_and_weight_are_one_rehearsal(track) -> None:
    swept = {run for row in track.tables["hyperparameters"].rows.values() for run in row.runs.values()}
    contrasted = {run for run in swept if track.runs[run].contrast}
    groups = [group for group in group_runs(track) if contrasted & set(group.stands_for)]
    assert len(groups) == 1
    assert contrasted <= set(groups[0].stands_for)
    assert len(contrasted) > 20


def test_a_group_is_scored_as_any_of_its_runs_is(track) -> None:
    for group in group_runs(track):
        assert set(group.evaluations) == {name for run in group.stands_for for name in track.runs[run].evaluations}


def test_a_rehearsal_changes_length_and_initial_weights_alone(track) -> None:
    run = run_named(track, "cityscapes-deeplabv3_r101-pne")
    assert set(changes(track, run)) == {
        "train_cfg.max_iters",
        "train_cfg.val_interval",
        "model.backbone.init_cfg",
        "model.backbone.init_cfg.type",
        "model.backbone.init_cfg.checkpoint",
    }
    assert set(changes(track, run, initial_weights="declared")) == {"train_cfg.max_iters", "train_cfg.val_interval"}


def test_a_contrast_that_starts_late_is_rehearsed_at_work(track) -> None:
    run = run_named(track, "coco_stuff-ocrnet_w48-cipc")
    assert changes(track, run)["model.decode_head.1.contrast.start"] == (5000, 0)
    config = track.config(run).to_dict()
    spec, plain = shortened(track.runs[run], config, "elsewhere", request())
    assert spec.contrast["start"] == 0
    assert [contrast["start"] for contrast in contrasts(plain["model"])] == [0]
    assert track.runs[run].contrast["start"] == 5000


def test_a_crop_scales_every_size_by_the_same_factor(track) -> None:
    found = changes(track, run_named(track, "cityscapes-ocrnet_w48-base"), crop=64, batch_size=2)
    pipeline = "train_dataloader.dataset.dataset.pipeline"
    sizes = {key: pair for key, pair in found.items() if isinstance(pair[1], int) and not key.startswith("train_cfg")}
    assert sizes == {
        "train_dataloader.batch_size": (8, 2),
        "model.data_preprocessor.size.0": (512, 64),
        "model.data_preprocessor.size.1": (1024, 128),
        f"{pipeline}.2.scale.0": (2048, 256),
        f"{pipeline}.2.scale.1": (1024, 128),
        f"{pipeline}.3.crop_size.0": (512, 64),
        f"{pipeline}.3.crop_size.1": (1024, 128),
        **{
            f"{loader}_dataloader.dataset.pipeline.1.scale.{axis}": pair
            for loader in ("val", "test")
            for axis, pair in enumerate([(2048, 256), (1024, 128)])
        },
    }


def test_sliding_windows_are_scaled_too(track) -> None:
    run = run_named(track, "ade20k-ocrnet_w48-base")
    config = track.config(run).to_dict()
    config["model"]["test_cfg"] = {"mode": "slide", "crop_size": (512, 512), "stride": (341, 341)}
    scale_images(config, 64)
    assert config["model"]["test_cfg"] == {"mode": "slide", "crop_size": (64, 64), "stride": (43, 43)}


@pytest.mark.parametrize(
    ("peak_gib", "size"), [(6.8, 8), (6.9, 11), (13, 16), (21, 24), (70, 80), (100, 141), (128, None)]
)
def test_memory_class_leaves_a_tenth_and_half_a_gib(peak_gib, size) -> None:
    assert memory_class(peak_gib * 1024) == size


# --- the command itself, on the quick track ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    assert draw_street("street_city", root / "street_city")
    return root


@pytest.fixture(scope="module")
def quick(repository: Path, data: Path):
    return load_track("quick", experiments=repository / "experiments", data_root=data)


def rehearse(repository: Path, data: Path, results: Path, *arguments: str) -> int:
    folders = ["--experiments", repository / "experiments", "--data-root", data, "--results", results]
    fixed = ["--track", "quick", "--iterations", "2", "--device", "cpu", "--workers", "1", "--threads", "1"]
    return main([*map(str, folders), *fixed, *arguments])


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
def rehearsed(repository: Path, data: Path, sweep: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    assert rehearse(repository, data, results, "--run", sweep[0]) == 0
    return results


def test_one_file_speaks_for_all_runs_of_a_group(rehearsed: Path, quick, sweep: list[str]) -> None:
    (path,) = (rehearsed / "quick/rehearsals").glob("*.json")
    record = read_rehearsal(path)
    trained, runs = record.trained, record.request.runs
    assert [path.stem, trained.run] == [runs[0], f"{runs[0]}-rehearsal"]
    assert set(sweep) < set(runs)
    assert trained.iterations == 2
    assert trained.provenance.micro_batch == quick.runs[path.stem].batch_size
    assert set(record.evaluations) == {name for run in runs for name in quick.runs[run].evaluations}
    assert {result.images for result in record.evaluations.values()} == {2}
    assert all(result.peak_memory_mib > 100 for result in record.evaluations.values())
    assert trained.losses["loss_contrast"] > 0
    assert record.highest_memory_mib >= trained.peak_memory_mib > 100
    assert trained.memory_kind == "resident_set"


def test_the_plan_finds_the_seconds(rehearsed: Path) -> None:
    (path,) = (rehearsed / "quick/rehearsals").glob("*.json")
    record = read_rehearsal(path)
    measured = Cost(record.trained.time_s, record.trained.provenance.device)
    assert read_rehearsals(path.parent) == dict.fromkeys(record.request.runs, measured)


def test_nothing_of_the_runs_themselves_is_touched(rehearsed: Path, sweep: list[str]) -> None:
    assert {path.name for path in (rehearsed / "quick").iterdir()} == {"rehearsals"}
    assert {path.name for path in (rehearsed / "quick/rehearsals").iterdir() if not path.suffix} == {"logs"}


def test_hours_count_every_run_that_a_rehearsal_stands_for(rehearsed: Path, quick) -> None:
    (path,) = (rehearsed / "quick/rehearsals").glob("*.json")
    record = read_rehearsal(path)
    expected = sum(quick.runs[run].iterations for run in record.request.runs) * record.trained.time_s / 3600
    assert record.hours(quick.runs) == pytest.approx(expected)
    assert f"for {len(record.request.runs)} runs on cpu:" in summarise([record], quick.runs, {})


def test_the_same_rehearsal_is_not_repeated_unless_asked(
    rehearsed: Path, repository: Path, data: Path, sweep: list[str], capsys: pytest.CaptureFixture
) -> None:
    (path,) = (rehearsed / "quick/rehearsals").glob("*.json")
    before = path.read_text()
    assert rehearse(repository, data, rehearsed, "--run", sweep[-1]) == 0
    assert "rehearsed already" in capsys.readouterr().out
    assert path.read_text() == before
    assert rehearse(repository, data, rehearsed, "--run", sweep[-1], "--again") == 0
    assert path.read_text() != before


def test_a_reduced_rehearsal_is_kept_from_the_plan(
    repository: Path, data: Path, sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert rehearse(repository, data, tmp_path, "--run", sweep[0], "--crop", "32", "--batch-size", "2") == 0
    folder = tmp_path / "quick/rehearsals"
    assert read_rehearsals(folder) == {}
    (path,) = (folder / "reduced").glob("*.json")
    record = read_rehearsal(path)
    assert (record.request.batch_size, record.request.crop, record.request.reduced) == (2, 32, True)
    assert record.trained.provenance.micro_batch == 2
    out = capsys.readouterr().out
    assert "Crop or batch were reduced" in out
    assert "hours of training" not in out


def test_a_failure_leaves_the_others_alone(
    repository: Path, data: Path, quick, sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    lost = run_named(quick, "coco_stuff-deeplabv3_r101-base")  # its data set was not drawn
    assert rehearse(repository, data, tmp_path, "--run", lost, sweep[0]) == 1
    out = capsys.readouterr().out
    assert f"FAILED {lost}: {data / 'street_stuff'}: no such folder" in out
    assert f"{lost}.log" in out
    assert len(list((tmp_path / "quick/rehearsals").glob("*.json"))) == 1


def test_a_signal_ends_it_soon_and_leaves_nothing_half_done(
    repository: Path, data: Path, sweep: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pne.rehearse", "--track", "quick", "--iterations", "100000", "--device", "cpu"]
    command += ["--workers", "1", "--run", sweep[0], "--data-root", str(data), "--results", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=repository, env=environment, stdout=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.rglob("*.log")):
            assert process.poll() is None
            time.sleep(0.1)
        time.sleep(8)
        process.terminate()
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 75
    assert "interrupted" in out
    assert not list((tmp_path / "quick/rehearsals").glob("*.json"))
    assert not list((tmp_path / "quick/rehearsals").glob(".work-*"))


def test_tables_choose_whole_groups(track) -> None:
    groups = group_runs(track)
    chosen = choose(groups, track, None, ["positive_weights"])
    assert [len(group.stands_for) for group in chosen] == [30, 2, 2]  # PNE itself stands for two sweeps, two seeds
    assert choose(groups, track, None, None) == groups
    with pytest.raises(UserError, match="no table 'positiv_weights'; did you mean positive_weights"):
        choose(groups, track, None, ["positiv_weights"])


def test_an_unknown_run_is_one_clear_error(
    repository: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert rehearse(repository, data, tmp_path, "--run", "cityscapes-nonsense") == 2
    assert "track quick: no run 'cityscapes-nonsense'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_broken_record_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"run": "x"}')
    with pytest.raises(UserError, match=r"x\.json: does not hold a rehearsal .*delete it and rehearse again"):
        read_rehearsal(path)


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
    init_default_scope("mmseg")
    config = run_config(data, iterations=1)
    register(config)
    return {**config["test_dataloader"]["dataset"], **changes}


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
    command += ["--device", "cpu", "--workers", "1", "--threads", str(min(2, os.cpu_count() or 1))]
    command += ["--data-root", str(data), "--results", str(tmp_path / "results")]
    assert subprocess.run(command, cwd=repository, check=False).returncode == 0
    records = [read_rehearsal(path) for path in (tmp_path / "results/paper/rehearsals/reduced").glob("*.json")]
    track = load_track("paper", experiments=repository / "experiments")
    assert {run for record in records for run in record.request.runs} == set(track.runs)
    assert all(set(record.evaluations) >= {"single_scale"} for record in records)
