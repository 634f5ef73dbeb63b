"""A key that no constructor takes is found before anything trains, and named by the declaration that holds it."""

import copy
import re
from pathlib import Path

import pytest
import torch
from tiny_runs import draw_images, write_run

from pne.engine.runner import prepare
from pne.engine.trial import check_buildable, find_mistakes, find_problem
from pne.errors import UserError
from pne.spec import read_config, read_spec
from pne.spec.__main__ import main
from pne.spec.catalogue import read_catalogue

TABLE = "tables/positive_weights.yaml"
MODEL = "models/tiny_deeplabv3_r18.py"
DATA = "datasets/street_city.py"
SCHEDULE = "schedules/street_100.py"


def mistakes(declarations, tables=("positive_weights",)):
    catalogue = read_catalogue(declarations.folder)
    return find_mistakes(declarations.load(catalogue=catalogue, tables=tables), catalogue)


def test_nothing_is_wrong_with_the_tracks_for_small_machines(repository, capsys):
    command = ["check", "--build", "--track", "quick", "camvid", "--experiments", str(repository / "experiments")]
    assert main(command) == 0
    assert "quick: 104 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model.decode_head.dropot": 0.1}, "unexpected keyword argument 'dropot'"),
        ({"model": {"backbone": {"depht": 18}}}, "unexpected keyword argument 'depht'"),
        ({"model.backbone.depth": 19}, "KeyError: .*invalid depth 19 for resnet"),
        ({"model.backbone.type": "ResNetV1e"}, "KeyError: ResNetV1e is not in the mmseg::model registry"),
        ({"model.decode_head.norm_cfg.epss": 1}, "unexpected keyword argument 'epss'"),
        (
            {"model.auxiliary_head.loss_decode": {"use_sigmoidd": True}},
            "CrossEntropyLoss.*unexpected keyword argument 'use_sigmoidd'",
        ),
        ({"model.decode_head": {"_delete_": True, "type": "ASPPHead", "num_classes": 11}}, ".*'in_channels'"),
        ({"model.decode_head.in_channels": 100}, "ValueError: does not fit what comes before it: "),
        ({"model.auxiliary_head.in_index": 9}, "ValueError: does not fit what comes before it: "),
        ({"train_dataloader.dataset.pipeline.4.probb": 1}, "RandomFlip.*unexpected keyword argument 'probb'"),
        ({"val_dataloader.dataset.pipeline.1": {"scal": [3, 4]}}, "Resize.*unexpected keyword argument 'scal'"),
        ({"train_dataloader.dataset.img_sufix": ".png"}, "unexpected keyword argument 'img_sufix'"),
        ({"optim_wrapper.optimizer.momentun": 1}, "SGD.*unexpected keyword argument 'momentun'"),
        ({"optim_wrapper.clip_gradd": {"max_norm": 1}}, "OptimWrapper.*unexpected keyword argument 'clip_gradd'"),
        ({"param_scheduler.0.powr": 1}, ".*unexpected keyword argument 'powr'"),
        ({"custom_hooks": [{"type": "EMAHok"}]}, "KeyError: EMAHok is not in the mmseg::hook registry"),
    ],
)
def test_a_wrong_key_of_a_row_is_named_there(declarations, changes, expected):
    declarations.change(TABLE, ("rows", "without", "config"), changes)
    (line,) = mistakes(declarations)
    key = next(iter(changes))
    assert re.match(f"{re.escape(f'{declarations.path(TABLE)}: rows.without: config.{key}: ')}.*{expected}", line), line


@pytest.mark.parametrize(
    ("file", "table", "old", "new", "expected"),
    [
        (MODEL, TABLE, "channels=64,", "chanels=64,", "model.decode_head: .*unexpected keyword argument 'chanels'"),
        (MODEL, TABLE, "in_channels=128", "in_channels=64", "model.decode_head: ValueError: does not fit what comes"),
        (DATA, TABLE, "prob=0.5", "probb=0.5", "train_dataloader.dataset: .*unexpected keyword argument 'probb'"),
        (DATA, TABLE, "Resize", "RandomResiz", "train_dataloader.dataset: .*RandomResiz is not in the"),
        (SCHEDULE, TABLE, "lr=0.05", "lr=0.05, nestrov=True", "optim_wrapper: .*unexpected keyword argument 'nestrov'"),
        (SCHEDULE, TABLE, "power=0.9", "powr=0.9", "param_scheduler.0: .*unexpected keyword argument 'powr'"),
        (
            "models/tiny_upernet_swin.py",
            "tables/coco_stuff.yaml",
            "betas=",
            "beta=",
            "optim_wrapper: .*unexpected keyword argument 'beta'",
        ),
        (
            "models/tiny_ocrnet.py",
            "tables/ade20k.yaml",
            "ocr_channels=32",
            "ocr_channel=32",
            "model.decode_head.1: .*unexpected keyword argument 'ocr_channel'",
        ),
    ],
)
def test_a_wrong_key_of_a_file_is_named_there_once(declarations, file, table, old, new, expected):
    declarations.replace(file, old, new)
    (line,) = mistakes(declarations, [Path(table).stem])
    assert re.match(f"{re.escape(f'{declarations.path(file)}: ')}{expected}", line), line


def test_the_command_reports_mistakes_without_a_traceback(declarations, capsys):
    for table in declarations.folder.glob("tables/*.yaml"):
        if table.stem != "positive_weights":
            table.unlink()
    declarations.change(TABLE, ("rows", "without", "config"), {"model.decode_head.dropot": 0.1})
    assert main(["check", "--build", "--track", "quick", "--experiments", str(declarations.folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {declarations.path(TABLE)}: rows.without: config.model.decode_head.dropot: ")
    assert "Traceback" not in error


# One run.


def prepared(path):
    return prepare(read_spec(path), read_config(path))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return draw_images(tmp_path_factory.mktemp("images") / "data", train=2, test=1)


def test_a_run_that_can_be_built_passes_and_stays_as_it_is(tmp_path, images):
    config = prepared(write_run(tmp_path, images, contrast={"loss": {"type": "PNELoss"}, "weight": 1.0}))
    before, state = copy.deepcopy(config), torch.get_rng_state()
    check_buildable(config, "config.py")
    assert config == before
    assert torch.equal(torch.get_rng_state(), state), "training's own draws are not touched"


def test_a_run_that_cannot_be_built_names_its_config_and_key(tmp_path, images):
    path = write_run(tmp_path, images, change={"model.decode_head.dropot": 0.1})
    with pytest.raises(UserError) as caught:
        check_buildable(prepared(path), str(path.with_name("config.py")))
    message = str(caught.value)
    assert message.startswith(f"{path.with_name('config.py')}: model.decode_head: ")
    assert "unexpected keyword argument 'dropot'; python -m pne.spec check --build names" in message
    assert len(message.splitlines()) == 1


def test_data_that_are_not_there_are_no_matter(tmp_path):
    assert find_problem(prepared(write_run(tmp_path, tmp_path / "none"))) is None
