"""A key that no constructor takes is found before anything trains, and named by the declaration that holds it."""

import copy

import pytest
import torch
from declaration_copies import declarations  # noqa: F401
from tiny_runs import draw_images, write_run

from pne.declaration.build_check import check_buildable, find_mistakes, find_problem
from pne.declaration.catalogue import read_catalogue
from pne.declaration.command import main
from pne.engine.preparation import prepare
from pne.engine.registration import register
from pne.errors import UserError
from pne.resolve import load_track
from pne.spec import read_config

TABLE = "tables/positive_weights.yaml"
MODEL = "models/tiny_deeplabv3_r18.py"
DATA = "datasets/street_city.py"
SCHEDULE = "schedules/street_100.py"


def mistakes(declarations, tables=("positive_weights",)):  # noqa: F811
    catalogue = read_catalogue(declarations.folder)
    return find_mistakes(
        load_track("quick", experiments=declarations.folder, catalogue=catalogue, tables=tables), catalogue
    )


def test_nothing_is_wrong_with_the_quick_track(repository, capsys):
    assert main(["check", "--build", "--track", "quick", "--experiments", str(repository / "experiments")]) == 0
    assert "quick: 44 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"model.decode_head.dropot": 0.1},
            "model.decode_head.dropot: ASPPHead takes no dropot; did you mean dropout_",
        ),
        ({"model": {"backbone": {"depht": 18}}}, "model.backbone.depht: ResNetV1c takes no depht; did you mean depth?"),
        ({"model.backbone.depth": 19}, "model.backbone: cannot be built: KeyError: invalid depth 19 for resnet"),
        (
            {"model.backbone.type": "ResNetV1e"},
            "model.backbone.type: nothing is registered as 'ResNetV1e'; did you mean ResNetV1",
        ),
        ({"model.decode_head.norm_cfg.epss": 1}, "model.decode_head.norm_cfg.epss: unknown to what ASPPHead builds"),
        (
            {"model.auxiliary_head.loss_decode": {"use_sigmoidd": True}},
            "model.auxiliary_head.loss_decode.use_sigmoidd: CrossEntropyLoss takes no use_sigmoidd; did you mean use",
        ),
        (
            {"model.decode_head": {"_delete_": True, "type": "ASPPHead", "num_classes": 11}},
            "model.decode_head: missing: 'in_channels' and 'channels'",
        ),
        ({"model.decode_head.in_channels": 100}, "model.decode_head: does not fit what comes before it: "),
        ({"model.auxiliary_head.in_index": 9}, "model.auxiliary_head: does not fit what comes before it: "),
        (
            {"train_dataloader.dataset.pipeline.4.probb": 1},
            "train_dataloader.dataset.pipeline.4.probb: RandomFlip takes no probb; did you mean prob?",
        ),
        (
            {"val_dataloader.dataset.pipeline.1": {"scal": [3, 4]}},
            "val_dataloader.dataset.pipeline.1.scal: Resize takes no scal; did you mean scale?",
        ),
        (
            {"train_dataloader.dataset.img_sufix": ".png"},
            "train_dataloader.dataset.img_sufix: StreetCityDataset takes no img_sufix; did you mean img_suffix?",
        ),
        (
            {"optim_wrapper.optimizer.momentun": 1},
            "optim_wrapper.optimizer.momentun: SGD takes no momentun; did you mean",
        ),
        (
            {"optim_wrapper.clip_gradd": {"max_norm": 1}},
            "optim_wrapper.clip_gradd: OptimWrapper takes no clip_gradd; did",
        ),
        ({"param_scheduler.0.powr": 1}, "param_scheduler.0.powr: PolyLR takes no powr; did you mean power?"),
        (
            {"custom_hooks": [{"type": "EMAHok"}]},
            "custom_hooks.0.type: nothing is registered as 'EMAHok'; did you mean",
        ),
        (
            {"custom_hooks": [{"type": "NPUProfilerHook", "beginn": 3}]},
            "custom_hooks.0.beginn: NPUProfilerHook takes no beginn; did you mean begin?",
        ),
    ],
)
def test_a_wrong_key_of_a_row_is_named_there(declarations, changes, expected):  # noqa: F811
    declarations.change(TABLE, ("rows", "without", "config"), changes)
    (line,) = mistakes(declarations)
    assert line.startswith(f"{declarations.path(TABLE)}: rows.without: config.{expected}")


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (
            MODEL,
            "channels=64,",
            "chanels=64,",
            "model.decode_head.chanels: ASPPHead takes no chanels; did you mean chan",
        ),
        (MODEL, "in_channels=128", "in_channels=64", "model.decode_head: does not fit what comes before it: "),
        (DATA, "prob=0.5", "probb=0.5", "train_dataloader.dataset.pipeline.4.probb: RandomFlip takes no probb"),
        (DATA, "Resize", "RandomResiz", "train_dataloader.dataset.pipeline.2.type: nothing is registered as 'Rand"),
        (
            SCHEDULE,
            "lr=0.05",
            "lr=0.05, nestrov=True",
            "optim_wrapper.optimizer.nestrov: SGD takes no nestrov; did you",
        ),
        (SCHEDULE, "power=0.9", "powr=0.9", "param_scheduler.0.powr: PolyLR takes no powr; did you mean power?"),
    ],
)
def test_a_wrong_key_of_a_file_is_named_there_once(declarations, file, old, new, expected):  # noqa: F811
    declarations.replace(file, old, new)
    (line,) = mistakes(declarations)
    assert line.startswith(f"{declarations.path(file)}: {expected}")


def test_the_optimiser_of_a_model_file_is_named_there(declarations):  # noqa: F811
    declarations.replace("models/tiny_upernet_swin.py", "betas=", "beta=")
    (line,) = mistakes(declarations, ["coco_stuff"])
    path = declarations.path("models/tiny_upernet_swin.py")
    assert line.startswith(f"{path}: optim_wrapper.optimizer.beta: AdamW takes no beta; did you mean betas?")


def test_a_cascade_names_the_head_that_is_wrong(declarations):  # noqa: F811
    declarations.replace("models/tiny_ocrnet.py", "ocr_channels=32", "ocr_channel=32")
    (line,) = mistakes(declarations, ["ade20k"])
    path = declarations.path("models/tiny_ocrnet.py")
    assert line.startswith(
        f"{path}: model.decode_head.1.ocr_channel: OCRHead takes no ocr_channel; did you mean ocr_ch"
    )


def test_the_command_reports_mistakes_without_a_traceback(declarations, capsys):  # noqa: F811
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
    config = read_config(path)
    register(config)
    return prepare(config.to_dict(), seed=0, iterations=6, precision="fp32", per_process=2, parts=1, workers=0)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return draw_images(tmp_path_factory.mktemp("images") / "data", train=2, test=1)


def test_a_run_that_can_be_built_passes_and_stays_as_it_is(tmp_path, images):
    config = prepared(write_run(tmp_path, images, contrast={"loss": {"type": "PNELoss"}}))
    before, state = copy.deepcopy(config), torch.get_rng_state()
    check_buildable(config, "config.py")
    assert config == before
    assert torch.equal(torch.get_rng_state(), state), "training's own draws are not touched"


def test_a_run_that_cannot_be_built_names_its_config_and_key(tmp_path, images):
    path = write_run(tmp_path, images, change={"model.decode_head.dropot": 0.1})
    with pytest.raises(UserError) as caught:
        check_buildable(prepared(path), str(path.with_name("config.py")))
    message = str(caught.value)
    assert message.startswith(f"{path.with_name('config.py')}: model.decode_head.dropot: FCNHead takes no dropot; did")
    assert len(message.splitlines()) == 1


def test_data_that_are_not_there_are_no_matter(tmp_path):
    assert find_problem(prepared(write_run(tmp_path, tmp_path / "none"))) is None
