"""A config of a user through the real runner, on real images."""

import copy
import json
from pathlib import Path

import pytest
import torch
from head_models import config as model_config
from mmengine.config import Config
from mmengine.runner import Runner
from mmseg.registry import MODELS

from pne.heads import ContrastHead
from pne.spec import load_track

CLASSES = 11
SIZE = (120, 160)


def runner_config(shared: Path, folder: Path, model: dict, iterations: int) -> Config:
    """Config of a training of one's own model on the small CamVid, else that of the track; validated at the end."""
    track = load_track("camvid_tiny", data_root=shared / "data", iterations=iterations, runtime={"workers": 0})
    config = track.config(next(iter(track.runs)))
    config.train_dataloader.batch_size = 2
    config.default_hooks = {
        "logger": {"type": "LoggerHook", "interval": 1, "log_metric_by_epoch": False},
        "checkpoint": {"type": "CheckpointHook", "by_epoch": False, "interval": 2},
    }
    config.log_processor = {"by_epoch": False, "window_size": 1}
    config.model, config.work_dir, config.experiment_name = model, str(folder), folder.name
    return config


def tiny_model(contrast: dict | None) -> dict:
    """The tiny ASPP segmentor for CamVid's classes."""
    model = copy.deepcopy(model_config("ASPPHead", contrast))
    for head in (model["decode_head"], model["auxiliary_head"]):
        head["num_classes"] = CLASSES
    model["data_preprocessor"].update(size=SIZE, mean=[123.7, 116.3, 103.5], std=[58.4, 57.1, 57.4], bgr_to_rgb=True)
    return model


def logged(folder: Path) -> list[dict]:
    """Return the scalars of each iteration that the runner logged."""
    (path,) = folder.glob("*/vis_data/scalars.json")
    return [json.loads(line) for line in path.read_text().splitlines() if "loss" in json.loads(line)]


def test_runner_trains_resumes_and_validates(shared: Path, tmp_path: Path) -> None:
    contrast = {"loss": {"type": "PNELoss", "num_samples": 10, "max_anchors": 20}, "projection": {"channels": 16}}
    whole = Runner.from_cfg(runner_config(shared, tmp_path / "whole", tiny_model(contrast), iterations=4))
    whole.train()
    lines = logged(tmp_path / "whole")
    assert len(lines) == 4
    assert all(line.keys() == lines[0].keys() for line in lines)
    assert all(line["decode.loss_contrast"] > 0 and line["decode.contrast_anchors"] > 0 for line in lines)
    total = sum(value for key, value in lines[0].items() if ".loss_" in key)
    assert lines[0]["loss"] == pytest.approx(total, rel=1e-5)

    resumed = runner_config(shared, tmp_path / "resumed", tiny_model(contrast), iterations=4)
    resumed.update(load_from=str(tmp_path / "whole" / "iter_2.pth"), resume=True)
    runner = Runner.from_cfg(resumed)
    runner.train()
    assert runner.model.decode_head.contrast.calls.item() == 4

    plain = Runner.from_cfg(runner_config(shared, tmp_path / "plain", tiny_model(None), iterations=4))
    plain.load_checkpoint(str(tmp_path / "whole" / "iter_4.pth"))
    assert plain.val() == whole.val()


def test_ten_line_example_trains(repository: Path, shared: Path, tmp_path: Path) -> None:
    """The config of the README, with a narrow backbone and small images in place of the stock ones."""
    path = repository / "examples" / "deeplabv3_contrast.py"
    assert len(path.read_text().splitlines()) <= 10
    example = Config.fromfile(path)
    head = example.model.decode_head
    with torch.device("meta"):
        full = MODELS.build(copy.deepcopy(head))
    assert full.contrast.projection.expand.weight.shape == (256, 512, 1, 1)
    narrow, varied = tiny_model(None)["backbone"], tiny_model(None)["decode_head"]["init_cfg"]
    head.update(init_cfg=varied, in_channels=32, channels=8, num_classes=CLASSES, norm_cfg={"type": "BN"})
    example.model.auxiliary_head.update(in_channels=16, channels=4, num_classes=CLASSES, norm_cfg={"type": "BN"})
    example.model.update(backbone=narrow, pretrained=None)
    example.model.data_preprocessor.size = SIZE
    settings = runner_config(shared, tmp_path / "example", example.model.to_dict(), iterations=2)
    settings.custom_imports = example.custom_imports
    runner = Runner.from_cfg(settings)
    assert isinstance(runner.model.decode_head, ContrastHead)
    assert runner.model.decode_head.contrast.weight == 1.3
    runner.train()
    assert all(line["decode.loss_contrast"] > 0 for line in logged(tmp_path / "example"))
