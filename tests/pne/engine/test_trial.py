"""A key that no constructor takes is found before anything trains, and named by the declaration that holds it."""

import copy
import re

import pytest
import torch
from tiny_runs import CONTRAST, write_run

from pne.engine.runner import prepare
from pne.engine.trial import check_buildable, find_mistakes
from pne.errors import UserError
from pne.spec import read_config, read_spec
from pne.spec.__main__ import main
from pne.spec.catalogue import read_catalogue

FIRST = "positive_weights"
TABLE = f"tables/{FIRST}.yaml"
MODEL = "models/tiny_deeplabv3_r18.py"
SWIN, OCRNET = "models/tiny_upernet_swin.py", "models/tiny_ocrnet.py"
DATA = "datasets/street_city.py"
SCHEDULE = "schedules/street_100.py"


def mistakes(declarations, table=FIRST):
    catalogue = read_catalogue(declarations.folder)
    return find_mistakes(declarations.load(catalogue=catalogue, tables=[table]), catalogue)


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
        ({"model.auxiliary_head.loss_decode": {"use_sigmoidd": 1}}, "CrossEntropyLoss.*unexpected .*'use_sigmoidd'"),
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
        (MODEL, FIRST, "channels=64,", "chanels=64,", "model.decode_head: .*unexpected keyword argument 'chanels'"),
        (MODEL, FIRST, "in_channels=128", "in_channels=64", "model.decode_head: ValueError: does not fit what comes"),
        (DATA, FIRST, "prob=0.5", "probb=0.5", "train_dataloader.dataset: .*unexpected keyword argument 'probb'"),
        (DATA, FIRST, "Resize", "RandomResiz", "train_dataloader.dataset: .*RandomResiz is not in the"),
        (SCHEDULE, FIRST, "lr=0.05", "lr=0.05, nestrov=True", "optim_wrapper: .*unexpected keyword argument 'nestrov'"),
        (SCHEDULE, FIRST, "power=0.9", "powr=0.9", "param_scheduler.0: .*unexpected keyword argument 'powr'"),
        (SWIN, "coco_stuff", "betas=", "beta=", "optim_wrapper: .*unexpected keyword argument 'beta'"),
        (OCRNET, "ade20k", "ocr_channels=", "ocr_channel=", "model.decode_head.1: .*unexpected .* 'ocr_channel'"),
    ],
)
def test_a_wrong_key_of_a_file_is_named_there_once(declarations, file, table, old, new, expected):
    declarations.replace(file, old, new)
    (line,) = mistakes(declarations, table)
    assert re.match(f"{re.escape(f'{declarations.path(file)}: ')}{expected}", line), line


def test_the_command_reports_mistakes_without_a_traceback(declarations, error_of):
    for table in declarations.folder.glob("tables/*.yaml"):
        if table.stem != FIRST:
            table.unlink()
    declarations.change(TABLE, ("rows", "without", "config"), {"model.decode_head.dropot": 0.1})
    error = error_of(main, "check", "--build", "--track", "quick", "--experiments", declarations.folder)
    assert error.startswith(f"error: {declarations.path(TABLE)}: rows.without: config.model.decode_head.dropot: ")


def test_a_run_that_can_be_built_passes_without_data_and_stays_as_it_is(tmp_path):
    path = write_run(tmp_path, tmp_path / "none", contrast=CONTRAST)
    config = prepare(read_spec(path), read_config(path))
    before, state = copy.deepcopy(config), torch.get_rng_state()
    check_buildable(config, "config.py")
    assert config == before
    assert torch.equal(torch.get_rng_state(), state), "training's own draws are not touched"


def test_one_image_is_refused_where_batch_norm_needs_two(tmp_path):
    path = write_run(tmp_path, tmp_path / "none", batch_size=4)
    config = prepare(read_spec(path), read_config(path), parts=4)
    check_buildable(config, "config.py")
    head = config["model"]["decode_head"]
    for key in ("num_convs", "concat_input"):
        del head[key]
    head.update(type="PSPHead", pool_scales=(1, 2))
    with pytest.raises(UserError, match=r"^config.py: one image .*model.decode_head: .*; use micro_batch=2 or more$"):
        check_buildable(config, "config.py")
    config["train_cfg"]["parts"] = 2
    check_buildable(config, "config.py")
