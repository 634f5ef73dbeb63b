"""What names a run and what does not; the files of a run."""

import re
import shutil
import subprocess
import sys
from dataclasses import make_dataclass
from types import MappingProxyType

import pytest
import yaml

import pne.options
from pne.errors import UserError
from pne.spec import Runtime, read_config, read_spec, write_spec
from pne.spec.__main__ import main
from pne.spec.identity import SPEC_VERSION, canonical, digest

SGD = {"deeplabv3_r50", "deeplabv3_r101", "encnet_r101", "hrnet_w48", "ocrnet_w48"}
ALL = SGD | {"upernet_swin_b"}
CONSTRUCTION, CITY = "tables/construction.yaml", "tracks/quick.yaml"


def ids(declarations, track="quick", **arguments) -> list[str]:
    return list(declarations.load(track, **arguments).runs)


# Each sentence of what names a run, first what does not.


def test_comments_and_formatting_name_no_run(declarations, quick_runs):
    model = "models/tiny_deeplabv3_r18.py"
    declarations.replace(CONSTRUCTION, "rows:\n", "rows:\n  # a comment\n\n")
    declarations.replace(CONSTRUCTION, "{use: pne}", "{  use:   'pne'  }")
    declarations.replace(model, "model = dict(", "# a comment\nmodel = dict(  # another")
    declarations.replace(model, "channels=64", "channels = 32 * 2")
    declarations.replace(model, "dilations=(1, 2, 3, 4)", "dilations=[1, 2, 3, 4]")
    declarations.replace(model, '"""DeepLabV3', '"""Another text')
    declarations.replace(
        "schedules/street_100.py",
        "optim_wrapper = dict(optimizer=dict(lr=0.05))",
        'optim_wrapper = {"optimizer": {"lr": 5e-2}}',
    )
    assert ids(declarations) == list(quick_runs)


def test_labels_paths_devices_workers_and_evaluations_name_no_run(declarations, quick_runs):
    for file, keys, value in [
        (CONSTRUCTION, "rows.pne_cn.label", "another label"),
        (CONSTRUCTION, "question", "another question?"),
        (CONSTRUCTION, "paper.caption", "another caption"),
        (CONSTRUCTION, "rows.pne_cn.published.miou.value", 1.0),
        (CONSTRUCTION, "rows.pne_cn.note", "a note"),
        (CONSTRUCTION, "evaluation", "multi_scale_flip"),
        (CONSTRUCTION, "columns.miou.evaluation", "multi_scale_flip"),
        (CONSTRUCTION, "rows.pne_cn.contrast.temperature", 1.0),
        (CONSTRUCTION, "rows.pne_cn.contrast.weight", 1.3),
        (CONSTRUCTION, "rows.pne_cn.contrast.start", 0),
        ("contrast/pne.yaml", "description", "another description"),
        (CITY, "data_root", "/elsewhere"),
        (CITY, "datasets.cityscapes.folder", "elsewhere"),
        (CITY, "datasets.cityscapes.title", "another title"),
        (CITY, "title", "another title"),
        (CITY, "workers", 7),
        (CITY, "threads", 3),
        (CITY, "device", "cuda"),
        (CITY, "gpus", 4),
        (CITY, "micro_batch", 4),
        (CITY, "cache_data", False),
        (CITY, "checkpoint_interval", 3),
        (CITY, "log_interval", 3),
        (CITY, "resources.memory_mb", 1),
    ]:
        declarations.change(file, tuple(keys.split(".")), value)
    assert ids(declarations) == list(quick_runs)


def test_arguments_of_the_environment_name_no_run(pristine):
    runtime = {"workers": 9, "device": "cpu", "gpus": 8, "threads": 2, "save_work": False}
    folders = {"data_root": "/data", "weights_dir": "/weights", "results": "/results"}
    moved = pristine.load("paper", **folders, runtime=runtime)
    assert list(moved.runs) == ids(pristine, "paper")
    run = next(iter(moved.runs.values()))
    assert (run.runtime.workers, run.runtime.device, run.runtime.gpus, run.runtime.save_work) == (9, "cpu", 8, False)
    config = moved.config(run.run)
    assert config.train_dataloader.num_workers == 9
    assert config.train_dataloader.dataset.dataset.data_root == "/data/cityscapes"
    assert config.model.backbone.init_cfg.checkpoint == "/weights/resnet101_v1c-e67eebb6.pth"
    assert str(run.directory) == f"/results/paper/runs/{run.run}"
    assert str(run.work_directory) == f"/results/paper/work/{run.run}"


def test_a_new_option_with_a_default_names_no_run(declarations, quick_runs, monkeypatch):
    margin = ("margin", float, pne.options.option(0.0, "A margin.", minimum=0.0))
    losses = {
        name: make_dataclass(options.__name__, [margin], bases=(options,), frozen=True, kw_only=True)
        for name, options in pne.options.LOSSES.items()
    }
    monkeypatch.setattr(pne.options, "LOSSES", MappingProxyType(losses))
    assert ids(declarations) == list(quick_runs)
    declarations.change(CONSTRUCTION, ("rows", "pne_cn", "contrast", "margin"), 0.5)
    assert len(set(ids(declarations)) - set(quick_runs)) == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("models/tiny_hrnet.py", "num_blocks=(1, 1, 1, 1)", "num_blocks=(1, 1, 1, 2)", {"hrnet_w48"}),
        ("schedules/street_100.py", "lr=0.05", "lr=0.06", SGD),
        ("schedules/street_100.py", "batch_size=8", "batch_size=4", ALL),
        ("schedules/street_100.py", "power=0.9", "power=1.0", SGD),
        ("datasets/street_city.py", "prob=0.5", "prob=0.4", ALL),
        (CITY, "precision: fp32", "precision: bf16", ALL),
    ],
)
def test_a_value_of_the_config_names_the_run(declarations, quick_runs, file, old, new, changed):
    declarations.replace(file, old, new)
    after = ids(declarations)
    assert {run.model for run in quick_runs.values()} == ALL
    assert {quick_runs[run].model for run in set(quick_runs) - set(after)} == changed
    assert all((name in after) == (run.model not in changed) for name, run in quick_runs.items())
    assert len(after) == len(quick_runs)


CONTRASTS = [
    {"use": "pne", "anchor_sets": "mixed", "num_samples": 50},
    {"use": "pne", "anchor_sets": "mixed", "weight": 1.2},
    {"use": "pne", "anchor_sets": "mixed", "start": 5},
    {"use": "pne", "anchor_sets": "mixed", "projection": {"channels": 128}},
]
CHANGES = [
    ({"optim_wrapper.optimizer.lr": 0.02}, "-lr0.02"),
    ({"optim_wrapper": {"optimizer": {"lr": 0.02}}}, "-lr0.02"),
    ({"optim_wrapper.optimizer.lr": 0.05}, ""),
    ({"optim_wrapper.optimizer.lr": 0.02, "model.decode_head.dropout_ratio": 0}, "-lr0.02-dropout_ratio0"),
    ({"model.auxiliary_head": None}, "-no_auxiliary_head"),
    ({"model.backbone.contract_dilation": False}, "-no_contract_dilation"),
    ({"model.decode_head.dilations": [1, 6, 12, 18]}, "-dilations1x6x12x18"),
    ({"model.decode_head.norm_cfg": {"type": "GN", "num_groups": 8}}, "-GN_type-num_groups8"),
    ({"train_dataloader.dataset.pipeline.4.prob": 0.0}, "-prob0"),
    ({"train_dataloader.dataset.pipeline": [{"type": "LoadImageFromFile"}]}, "-pipeline"),
    ({"model.backbone.a": 1, "model.backbone.b": 2, "model.backbone.c": 3, "model.backbone.d": 4}, "-4_changes"),
    ({"model.backbone.note": "a long text that would make a long name"}, "-note"),
]


@pytest.fixture(scope="module")
def varied(pristine, tmp_path_factory):
    """Runs of rows that change one thing each."""
    folder = shutil.copytree(pristine.folder, tmp_path_factory.mktemp("varied") / "experiments")
    declarations = type(pristine)(folder)
    rows = {f"contrast_{index}": {"label": "x", "contrast": value} for index, value in enumerate(CONTRASTS)}
    rows |= {f"config_{index}": {"label": "x", "config": value} for index, (value, _) in enumerate(CHANGES)}
    rows["long"] = {"label": "x", "schedule": "long"}
    declarations.change(CITY, ("schedules", "long"), "camvid_4k")
    table = yaml.safe_load(declarations.text(CONSTRUCTION)) | {"table": "varied", "rows": rows, "paper": None}
    declarations.write("tables/varied.yaml", yaml.safe_dump(table))
    return {key: row.runs[0] for key, row in declarations.load().tables["varied"].rows.items()}


def test_each_setting_of_a_contrast_names_a_run(varied, quick_runs):
    runs = [run for row, run in varied.items() if row.startswith("contrast")]
    assert len({*runs, *quick_runs}) == len(CONTRASTS) + len(quick_runs)


def test_what_a_row_changes_in_the_config_is_in_the_name(varied, quick_runs):
    plain = next(name for name in quick_runs if name.startswith("cityscapes-deeplabv3_r50-base-s0-"))
    for index, (changes, words) in enumerate(CHANGES):
        run = varied[f"config_{index}"]
        assert run[:-9] == f"cityscapes-deeplabv3_r50-base{words}-s0", changes
        assert (run == plain) == (words == ""), changes
    # so is another schedule than the data set's own
    assert varied["long"][:-9] == "cityscapes-deeplabv3_r50-base-long-s0"


def test_seeds_name_runs_and_share_nothing(pristine, quick_runs):
    both = pristine.load(seeds=[0, 1])
    assert len(both.runs) == 2 * len(quick_runs)
    assert {run.seed for run in both.runs.values()} == {0, 1}
    for table in both.tables.values():
        for row in table.rows.values():
            assert [both.runs[run].seed for run in row.runs.values()] == list(row.runs)
    assert set(quick_runs) < set(both.runs)


def test_random_or_imagenet_weights_name_the_run(pristine):
    random, imagenet = ids(pristine, "camvid"), ids(pristine, "camvid", weights_dir="weights")
    assert set(random).isdisjoint(imagenet)
    assert ids(pristine, "camvid", weights_dir="elsewhere") == imagenet


def test_a_shorter_rehearsal_is_another_run_with_schedules_in_proportion(pristine):
    short = pristine.load("paper", iterations=20, limit=2)
    assert set(short.runs).isdisjoint(ids(pristine, "paper"))
    for name, run in short.runs.items():
        config = short.config(name)
        assert run.iterations == config.train_cfg.max_iters == 20
        for scheduler in config.param_scheduler:
            assert 0 <= scheduler.begin < scheduler.end <= 20
        assert config.train_dataloader.dataset.dataset.indices == config.test_dataloader.dataset.indices == 2
        if run.contrast and run.contrast["loss"] == "PixelContrastLoss":
            # 5000 of 60,000 or of 160,000 iterations, in 20.
            expected = {"coco_stuff": 2, "ade20k": 1}[run.dataset]
            assert run.contrast["start"] == expected
            assert config.model.decode_head[-1].contrast.start == expected


# The canonical form.


def test_canonical_form_unites_what_trains_the_same():
    one = {"model": {"lr": 1.0, "sizes": (1, 2)}, "work_dir": "a", "data": {"data_root": "x", "num_workers": 3}}
    two = {"data": {"data_root": "y"}, "model": {"sizes": [1, 2], "lr": 1}, "load_from": None}
    assert canonical(one) == canonical(two) == {"model": {"lr": 1, "sizes": [1, 2]}, "data": {}}
    assert digest(canonical(one)) == digest(canonical(two))
    url, path = "https://example.org/pretrain/net-1234.pth", "/weights/net-1234.pth"
    assert canonical({"init_cfg": {"checkpoint": url}}) == canonical({"init_cfg": {"checkpoint": path}})


@pytest.mark.parametrize(
    ("one", "two"), [(1, 2), (True, 1), ("1", 1), (None, 0), ([1, 2], [2, 1]), (0.1, 0.2), (False, None)]
)
def test_canonical_form_tells_values_apart(one, two):
    assert digest(canonical({"a": one})) != digest(canonical({"a": two}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), print, {1, 2}])
def test_canonical_form_refuses_what_is_no_plain_data(value):
    with pytest.raises(UserError, match=r"config: a\.b\.0: "):
        canonical({"a": {"b": [value]}})


# Files.


@pytest.fixture
def written(pristine, tmp_path):
    """The track, one of its runs, and the spec and the config that are written for it."""
    track = pristine.load(results=tmp_path / "results", tables=["construction"])
    run = next(r for r in track.runs.values() if r.contrast and r.contrast["options"])
    path = write_spec(run, track.config(run.run))
    return track, run, path, path.parent / "config.py"


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_spec_and_config_survive_the_file(written):
    track, run, path, _ = written
    assert path == run.directory / "spec.yaml"
    assert read_spec(path) == run
    config = read_config(path)
    expected = track.config(run.run)
    assert config.to_dict() == expected.to_dict()
    assert isinstance(config.to_dict()["train_dataloader"]["dataset"]["dataset"]["pipeline"][2]["scale"], tuple)
    assert config.model.decode_head.type == "ContrastHead"


def test_writing_again_leaves_the_files_alone(written):
    track, run, path, config = written
    before = {file: file.stat().st_mtime_ns for file in path.parent.iterdir()}
    assert before.keys() == {config, path}
    write_spec(run, track.config(run.run))
    assert {file: file.stat().st_mtime_ns for file in path.parent.iterdir()} == before


@pytest.mark.parametrize("content", [b"", b"spec_version: 0\n", b"run: \xff\xfe", b"a: [1,"])
def test_a_spec_that_cannot_be_read_is_written_anew(written, content):
    track, run, path, config = written
    for file in (path, config):
        file.write_bytes(content)
    write_spec(run, track.config(run.run))
    assert read_spec(path) == run
    assert read_config(path)


def test_of_a_config_the_data_may_move_and_nothing_else_may_change(written):
    _, run, path, config = written
    edit(config, "data/street_city", "/elsewhere/street_city")
    assert read_config(path).train_dataloader.dataset.dataset.data_root == "/elsewhere/street_city"
    edit(config, "'momentum': 0.9", "'momentum': 0.8")
    with pytest.raises(UserError, match=rf"config.py: hash .* --run {re.escape(run.run)}"):
        read_config(path)
    config.unlink()
    with pytest.raises(UserError, match=rf"python -m pne.spec write --track quick --run {re.escape(run.run)}"):
        read_config(path)


def test_another_config_is_not_written(written):
    track, run, _, _ = written
    other = next(r for r in track.runs if r != run.run)
    with pytest.raises(UserError, match="the config given for"):
        write_spec(run, track.config(other))


EDITED = ".* not of RUN: it was edited by hand; write it anew"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (f"spec_version: {SPEC_VERSION}", "spec_version: 999", "spec_version: expected"),
        ("seed: 0", "seed: none", "seed: "),
        ("precision: fp32", "precision: fp8", "precision: "),
        ("track: quick", "trakc: quick", r"trakc: unknown key; did you mean track\?"),
        ("seed: 0", "seed: 7", EDITED),
        ("precision: fp32", "precision: bf16", EDITED),
    ],
)
def test_a_damaged_or_edited_spec_is_refused(written, old, new, problem):
    _, run, path, _ = written
    edit(path, old, new)
    with pytest.raises(UserError, match=f"{path}: {problem.replace('RUN', run.run)}"):
        read_spec(path)


@pytest.mark.parametrize("line", ["import os", "os.system('touch ran')", "a = open('ran', 'w')", "f()[0] = 1", "a = ("])
def test_a_config_is_read_as_values_and_never_run(written, line, tmp_path, monkeypatch):
    _, _, path, config = written
    monkeypatch.chdir(tmp_path)
    config.write_text(f"{config.read_text()}{line}\n")
    with pytest.raises(UserError, match=r"config\.py:\d+: expected keys with plain values"):
        read_config(path)
    assert not (tmp_path / "ran").exists()


def test_runtime_refuses_unknown_and_impossible_values():
    known = {"data_root": "d", "results": "r", "checkpoint_interval": 1, "log_interval": 1}
    Runtime.model_validate(known)
    for wrong in ({"workers": -1}, {"device": "tpu"}, {"gpus": 0}, {"wokers": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Runtime.model_validate(known | wrong)


# The command line.


def test_the_command_writes_one_run(pristine, quick_runs, tmp_path):
    run = next(iter(quick_runs))
    words = f"write --track quick --run {run} --experiments {pristine.folder} --results {tmp_path} --data-root /data"
    command = [sys.executable, "-m", "pne.spec", *words.split(), "--runtime", "workers=3", "device=cuda"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(tmp_path / "quick/runs" / run / "spec.yaml")
    spec = read_spec(done.stdout.strip())
    assert (spec.runtime.workers, spec.runtime.device, spec.runtime.data_root) == (3, "cuda", "/data")


def test_the_command_ends_with_one_message_and_status_2(declarations, capsys):
    declarations.replace(CONSTRUCTION, "anchor_sets: mixed}", "anchor_set: mixed}")
    assert main(["check", "--experiments", str(declarations.folder)]) == 2
    start = f"error: {declarations.path(CONSTRUCTION)}: rows.pne_cn: contrast.anchor_set is no option"
    assert capsys.readouterr().err.startswith(start)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--run", "nothing"], "no run 'nothing'"),
        (["--runtime", "workers"], "expected KEY=VALUE"),
        (["--runtime", "wokers=3"], "wokers: unknown key; did you mean workers?"),
        (["--tables", "constructoin"], "did you mean construction?"),
        (["--iterations", "0"], "iterations: expected a whole number >= 1"),
    ],
)
def test_wrong_arguments_are_named(pristine, tmp_path, capsys, arguments, problem):
    common = ["write", "--track", "quick", "--experiments", str(pristine.folder), "--results", str(tmp_path)]
    assert main([*common, *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_missing_initial_weights_are_named_before_training(pristine, tmp_path, capsys):
    run = next(r for r in ids(pristine, "paper") if "hrnet_w48-base" in r)
    words = f"write --track paper --run {run} --experiments {pristine.folder} --results {tmp_path}/r"
    command = f"{words} --weights-dir {tmp_path}".split()
    weights = tmp_path / "hrnetv2_w48-d2186c55.pth"
    for content, problem in [
        (None, "no such file"),
        (b"", "the file is empty"),
        (b"<!DOCTYPE html>", "no file of PyTorch weights: it begins with b'<!DOCTYPE html>"),
    ]:
        if content is not None:
            weights.write_bytes(content)
        assert main(command) == 2
        error = capsys.readouterr().err
        assert f"{weights}: {problem}" in error
        assert re.search(r"download https://\S+/hrnetv2_w48-d2186c55\.pth", error)
    weights.write_bytes(b"PK\x03\x04")
    assert main(command) == 0
