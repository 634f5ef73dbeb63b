"""What names a run and what does not; the files of a run."""

import re
import subprocess
import sys
from types import MappingProxyType

import pytest
from declaration_copies import Declarations, declarations  # noqa: F401

import pne.options
from pne.declaration.canonical import canonical, digest
from pne.declaration.command import main
from pne.errors import UserError
from pne.resolve import load_track
from pne.spec import SPEC_VERSION, Runtime, identify, read_config, read_spec, write_spec


def quick(declarations: Declarations, name: str = "quick", **arguments):  # noqa: F811
    return load_track(name, experiments=declarations.folder, **arguments)


def ids(declarations: Declarations, name: str = "quick", **arguments) -> list[str]:  # noqa: F811
    return list(quick(declarations, name, **arguments).runs)


SGD = {"deeplabv3_r50", "deeplabv3_r101", "encnet_r101", "hrnet_w48", "ocrnet_w48"}
ALL = SGD | {"upernet_swin_b"}


# Each sentence of what names a run, first what does not.


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("tables/construction.yaml", "rows:\n", "rows:\n  # a comment\n\n"),
        ("tables/construction.yaml", "{use: pne}", "{  use:   'pne'  }"),
        ("models/tiny_deeplabv3_r18.py", "model = dict(", "# a comment\nmodel = dict(  # another"),
        ("models/tiny_deeplabv3_r18.py", "channels=64", "channels = 32 * 2"),
        ("models/tiny_deeplabv3_r18.py", "dilations=(1, 2, 3, 4)", "dilations=[1, 2, 3, 4]"),
        ("models/tiny_deeplabv3_r18.py", '"""DeepLabV3', '"""Another text'),
        ("schedules/street_100.py", "lr=0.05", "lr=5e-2"),
        (
            "schedules/street_100.py",
            "optim_wrapper = dict(optimizer=dict(lr=0.05))",
            'optim_wrapper = {"optimizer": {"lr": 0.05}}',
        ),
    ],
)
def test_comments_and_formatting_name_no_run(declarations, file, old, new):  # noqa: F811
    before = ids(declarations)
    declarations.replace(file, old, new)
    assert ids(declarations) == before


@pytest.mark.parametrize(
    ("file", "keys", "value"),
    [
        ("tables/construction.yaml", ("rows", "pne_cn", "label"), "another label"),
        ("tables/construction.yaml", ("question",), "another question?"),
        ("tables/construction.yaml", ("paper", "caption"), "another caption"),
        ("tables/construction.yaml", ("rows", "pne_cn", "published", "miou", "value"), 1.0),
        ("tables/construction.yaml", ("rows", "pne_cn", "note"), "a note"),
        ("tables/construction.yaml", ("evaluation",), "multi_scale_flip"),
        ("tables/construction.yaml", ("columns", "miou", "evaluation"), "multi_scale_flip"),
        ("tables/construction.yaml", ("rows", "pne_cn", "contrast", "temperature"), 1.0),
        ("tables/construction.yaml", ("rows", "pne_cn", "contrast", "weight"), 1.3),
        ("tables/construction.yaml", ("rows", "pne_cn", "contrast", "start"), 0),
        ("contrast/pne.yaml", ("description",), "another description"),
        ("tracks/quick.yaml", ("data_root",), "/elsewhere"),
        ("tracks/quick.yaml", ("datasets", "cityscapes", "folder"), "elsewhere"),
        ("tracks/quick.yaml", ("datasets", "cityscapes", "title"), "another title"),
        ("tracks/quick.yaml", ("title",), "another title"),
        ("tracks/quick.yaml", ("workers",), 7),
        ("tracks/quick.yaml", ("threads",), 3),
        ("tracks/quick.yaml", ("device",), "cuda"),
        ("tracks/quick.yaml", ("gpus",), 4),
        ("tracks/quick.yaml", ("cache_data",), False),
        ("tracks/quick.yaml", ("checkpoint_interval",), 3),
        ("tracks/quick.yaml", ("log_interval",), 3),
    ],
)
def test_labels_paths_devices_workers_and_evaluations_name_no_run(declarations, file, keys, value):  # noqa: F811
    before = ids(declarations)
    declarations.change(file, keys, value)
    assert ids(declarations) == before


def test_arguments_of_the_environment_name_no_run(declarations):  # noqa: F811
    before = ids(declarations, "paper")
    runtime = {"workers": 9, "device": "cpu", "gpus": 8, "threads": 2, "save_work": False}
    moved = quick(declarations, "paper", data_root="/data", weights_dir="/weights", results="/results", runtime=runtime)
    assert list(moved.runs) == before
    run = next(iter(moved.runs.values()))
    assert (run.runtime.workers, run.runtime.device, run.runtime.gpus, run.runtime.save_work) == (9, "cpu", 8, False)
    config = moved.config(run.run)
    assert config.train_dataloader.num_workers == 9
    assert config.train_dataloader.dataset.dataset.data_root == "/data/cityscapes"
    assert config.model.backbone.init_cfg.checkpoint == "/weights/resnet101_v1c-e67eebb6.pth"
    assert str(run.directory) == f"/results/paper/runs/{run.run}"
    assert str(run.work_directory) == f"/results/paper/work/{run.run}"


def test_a_new_option_with_a_default_names_no_run(declarations, monkeypatch):  # noqa: F811
    before = ids(declarations)
    new = pne.options.Option("margin", "float", 0.0, minimum=0.0)
    losses = {name: {**options, "margin": new} for name, options in pne.options.LOSSES.items()}
    monkeypatch.setattr(pne.options, "LOSSES", MappingProxyType(losses))
    assert ids(declarations) == before
    declarations.change("tables/construction.yaml", ("rows", "pne_cn", "contrast", "margin"), 0.5)
    assert len(set(ids(declarations)) - set(before)) == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("models/tiny_hrnet.py", "num_blocks=(1, 1, 1, 1)", "num_blocks=(1, 1, 1, 2)", {"hrnet_w48"}),
        ("schedules/street_100.py", "lr=0.05", "lr=0.06", SGD),
        ("schedules/street_100.py", "batch_size=8", "batch_size=4", ALL),
        ("schedules/street_100.py", "power=0.9", "power=1.0", SGD),
        ("datasets/street_city.py", "prob=0.5", "prob=0.4", ALL),
        ("tracks/quick.yaml", "precision: fp32", "precision: bf16", ALL),
    ],
)
def test_a_value_of_the_config_names_the_run(declarations, file, old, new, changed):  # noqa: F811
    before = quick(declarations).runs
    declarations.replace(file, old, new)
    after = quick(declarations).runs
    assert {run.model for run in before.values()} == ALL
    assert {before[run].model for run in set(before) - set(after)} == changed
    assert all((name in after) == (run.model not in changed) for name, run in before.items())
    assert len(after) == len(before)


@pytest.mark.parametrize(
    "contrast",
    [
        {"use": "pne", "anchor_sets": "mixed", "num_samples": 50},
        {"use": "pne", "anchor_sets": "mixed", "weight": 1.2},
        {"use": "pne", "anchor_sets": "mixed", "start": 5},
        {"use": "pne", "anchor_sets": "mixed", "projection": {"channels": 128}},
        {"use": "asymmetric", "anchor_sets": "mixed"},
    ],
)
def test_changing_the_contrast_of_one_row_names_one_new_run(declarations, contrast):  # noqa: F811
    before = ids(declarations)
    declarations.change("tables/construction.yaml", ("rows", "pne_cn", "contrast"), contrast)
    after = ids(declarations)
    assert len(set(after) - set(before)) == 1
    assert len(set(before) - set(after)) == 1


def test_seeds_name_runs_and_share_nothing(declarations):  # noqa: F811
    both = quick(declarations, seeds=[0, 1])
    assert len(both.runs) == 2 * len(ids(declarations))
    assert {run.seed for run in both.runs.values()} == {0, 1}
    for table in both.tables.values():
        for row in table.rows.values():
            assert [both.runs[run].seed for run in row.runs.values()] == list(row.runs)
    assert set(ids(declarations)) < set(both.runs)


def test_random_or_imagenet_weights_name_the_run(declarations):  # noqa: F811
    assert set(ids(declarations, "camvid")).isdisjoint(ids(declarations, "camvid", weights_dir="weights"))
    moved = ids(declarations, "camvid", weights_dir="elsewhere")
    assert moved == ids(declarations, "camvid", weights_dir="weights")


def test_a_shorter_rehearsal_is_another_run_with_schedules_in_proportion(declarations):  # noqa: F811
    short = quick(declarations, "paper", iterations=20, limit=2)
    assert set(short.runs).isdisjoint(ids(declarations, "paper"))
    for name, run in short.runs.items():
        config = short.config(name)
        assert run.iterations == config.train_cfg.max_iters == 20
        for scheduler in config.param_scheduler:
            assert 0 <= scheduler.begin < scheduler.end <= 20
        assert config.train_dataloader.dataset.dataset.indices == config.test_dataloader.dataset.indices == 2
    for name, run in short.runs.items():
        if run.contrast and run.contrast["loss"] == "PixelContrastLoss":
            # 5000 of 60,000 or of 160,000 iterations, in 20.
            expected = {"coco_stuff": 2, "ade20k": 1}[run.dataset]
            assert run.contrast["start"] == expected
            assert short.config(name).model.decode_head[-1].contrast.start == expected


def test_identifiers_are_readable_and_end_in_eight_digits(declarations):  # noqa: F811
    names = ids(declarations)
    assert all(re.fullmatch(r"[a-z0-9_.-]+-s0-[0-9a-f]{8}", name) for name in names)
    slugs = {name[:-9] for name in names}
    assert len(slugs) == len(names), "the readable part tells the paper's runs apart"
    assert {
        "cityscapes-deeplabv3_r50-base-s0",
        "cityscapes-deeplabv3_r50-pne-s0",
        "cityscapes-deeplabv3_r50-pne-temperature0.1-s0",
        "cityscapes-deeplabv3_r50-pne-weight0.4-s0",
        "cityscapes-deeplabv3_r50-asymmetric-mixed_anchor_sets-hard_negatives-s0",
        "cityscapes-deeplabv3_r50-pne-no_positive_weight-s0",
    } <= slugs


@pytest.mark.parametrize(
    ("changes", "words"),
    [
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
    ],
)
def test_what_a_row_changes_in_the_config_is_in_the_name(declarations, changes, words):  # noqa: F811
    plain = next(name for name in ids(declarations) if name.startswith("cityscapes-deeplabv3_r50-base-s0-"))
    declarations.change("tables/construction.yaml", ("rows", "pne_cn", "contrast"), None)
    declarations.change("tables/construction.yaml", ("rows", "pne_cn", "config"), changes)
    (run,) = quick(declarations).tables["construction"].rows["pne_cn"].runs.values()
    assert run[:-9] == f"cityscapes-deeplabv3_r50-base{words}-s0"
    assert (run == plain) == (words == "")


def test_another_schedule_than_the_data_set_s_own_is_in_the_name(declarations):  # noqa: F811
    declarations.change("tracks/quick.yaml", ("schedules", "long"), "camvid_4k")
    declarations.change("tables/construction.yaml", ("rows", "pne_cn", "schedule"), "long")
    (run,) = quick(declarations).tables["construction"].rows["pne_cn"].runs.values()
    assert run[:-9] == "cityscapes-deeplabv3_r50-pne-mixed_anchor_sets-long-s0"


# The canonical form.


def test_canonical_form_unites_what_trains_the_same():
    one = {"model": {"lr": 1.0, "sizes": (1, 2)}, "work_dir": "a", "data": {"data_root": "x", "num_workers": 3}}
    two = {"data": {"data_root": "y"}, "model": {"sizes": [1, 2], "lr": 1}, "load_from": None}
    assert canonical(one) == canonical(two) == {"model": {"lr": 1, "sizes": [1, 2]}, "data": {}}
    assert digest(canonical(one)) == digest(canonical(two))


def test_canonical_form_knows_a_checkpoint_by_its_file_name():
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


def test_identity_is_config_seed_and_precision():
    config = {"model": {"depth": 50}}
    digits = {identify(config, seed, precision)[1] for seed in (0, 1) for precision in ("fp32", "bf16")}
    assert len(digits) == 4
    assert identify(config, 0, "fp32") == identify({"model": {"depth": 50.0}}, 0, "fp32")


# Files.


@pytest.fixture
def written(declarations, tmp_path):  # noqa: F811
    track = quick(declarations, results=tmp_path / "results", tables=["construction"])
    run = next(r for r in track.runs.values() if r.contrast and r.contrast["options"])
    return track, run, write_spec(run, track.config(run.run))


def test_spec_and_config_survive_the_file(written):
    track, run, path = written
    assert path == run.directory / "spec.yaml"
    assert read_spec(path) == run
    config = read_config(path)
    expected = track.config(run.run)
    assert config.to_dict() == expected.to_dict()
    assert isinstance(config.to_dict()["train_dataloader"]["dataset"]["dataset"]["pipeline"][2]["scale"], tuple)
    assert config.model.decode_head.type == "ContrastHead"


def test_writing_again_leaves_the_files_alone(written):
    track, run, path = written
    before = [(file, file.stat().st_mtime_ns) for file in sorted(path.parent.iterdir())]
    assert [file.name for file, _ in before] == ["config.py", "spec.yaml"]
    write_spec(run, track.config(run.run))
    assert [(file, file.stat().st_mtime_ns) for file in sorted(path.parent.iterdir())] == before


def test_a_config_that_was_edited_is_refused(written):
    _, run, path = written
    config = path.parent / "config.py"
    config.write_text(config.read_text().replace("'momentum': 0.9", "'momentum': 0.8"))
    with pytest.raises(UserError, match=rf"config.py: hash .* --run {re.escape(run.run)}"):
        read_config(path)


def test_moving_the_data_in_a_config_is_allowed(written):
    _, _, path = written
    config = path.parent / "config.py"
    config.write_text(config.read_text().replace("data/street_city", "/elsewhere/street_city"))
    assert read_config(path).train_dataloader.dataset.dataset.data_root == "/elsewhere/street_city"


def test_another_config_is_not_written(written):
    track, run, _ = written
    other = next(r for r in track.runs if r != run.run)
    with pytest.raises(UserError, match="the config given for"):
        write_spec(run, track.config(other))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (f"spec_version: {SPEC_VERSION}", "spec_version: 999", "spec_version: expected"),
        ("seed: 0", "seed: none", "seed: "),
        ("precision: fp32", "precision: fp8", "precision: "),
        ("track: quick", "trakc: quick", "trakc: unknown key; did you mean track?"),
    ],
)
def test_a_damaged_spec_names_the_key(written, old, new, problem):
    _, _, path = written
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_spec(path)
    assert f"{path}: {problem}" in str(caught.value)


def test_a_missing_config_names_the_command(written):
    _, run, path = written
    (path.parent / "config.py").unlink()
    with pytest.raises(UserError, match=rf"python -m pne.spec write --track quick --run {re.escape(run.run)}"):
        read_config(path)


def test_runtime_refuses_unknown_and_impossible_values():
    known = {"data_root": "d", "results": "r", "checkpoint_interval": 1, "log_interval": 1}
    Runtime.model_validate(known)
    for wrong in ({"workers": -1}, {"device": "tpu"}, {"gpus": 0}, {"wokers": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Runtime.model_validate(known | wrong)


# The command line.


def run_command(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "pne.spec", *map(str, arguments)], capture_output=True, text=True)


def test_the_command_writes_one_run(declarations, tmp_path):  # noqa: F811
    run = ids(declarations)[0]
    done = run_command(
        "write",
        "--track",
        "quick",
        "--run",
        run,
        "--experiments",
        declarations.folder,
        "--results",
        tmp_path / "r",
        "--data-root",
        "/data",
        "--runtime",
        "workers=3",
        "device=cuda",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(tmp_path / "r/quick/runs" / run / "spec.yaml")
    spec = read_spec(done.stdout.strip())
    assert (spec.runtime.workers, spec.runtime.device, spec.runtime.data_root) == (3, "cuda", "/data")


def test_the_command_ends_with_one_message_and_status_2(declarations):  # noqa: F811
    declarations.replace("tables/construction.yaml", "anchor_sets: mixed}", "anchor_set: mixed}")
    done = run_command("check", "--experiments", declarations.folder)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(
        f"error: {declarations.folder}/tables/construction.yaml: rows.pne_cn: contrast.anchor_set is no option"
    )


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
def test_wrong_arguments_are_named(declarations, tmp_path, capsys, arguments, problem):  # noqa: F811
    common = ["write", "--track", "quick", "--experiments", str(declarations.folder), "--results", str(tmp_path)]
    assert main([*common, *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_missing_initial_weights_are_named_before_training(declarations, tmp_path, capsys):  # noqa: F811
    import torch

    run = next(r for r in ids(declarations, "paper") if "hrnet_w48-base" in r)
    common = ["write", "--track", "paper", "--experiments", str(declarations.folder), "--results", str(tmp_path / "r")]
    common += ["--run", run, "--weights-dir", str(tmp_path)]
    assert main(common) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path}/hrnetv2_w48-d2186c55.pth: no such file" in error
    assert re.search(r"download https://\S+/hrnetv2_w48-d2186c55\.pth", error)
    (tmp_path / "hrnetv2_w48-d2186c55.pth").write_bytes(b"<!DOCTYPE html><html>404</html>")
    assert main(common) == 2
    error = capsys.readouterr().err
    assert "hrnetv2_w48-d2186c55.pth: no file of PyTorch weights: it begins with b'<!DOCTYPE html>" in error
    assert re.search(r"download https://\S+/hrnetv2_w48-d2186c55\.pth", error)
    torch.save({}, tmp_path / "hrnetv2_w48-d2186c55.pth")
    assert main(common) == 0


def test_the_command_exports_schemas(tmp_path, repository, capsys):
    assert main(["schema", "--out", str(tmp_path)]) == 0
    for path in (repository / "experiments/schemas").glob("*.json"):
        assert (tmp_path / path.name).read_text() == path.read_text()
