"""A row's ``config:`` either changes the training or is refused."""

import re

import pytest

from pne.errors import UserError
from pne.spec.checks import check_changes

HEAD = {"type": "ASPPHead", "dropout_ratio": 0.1}
BASE = {
    "model": {
        "type": "EncoderDecoder",
        "backbone": {"type": "ResNetV1c", "depth": 50, "style": "pytorch"},
        "decode_head": HEAD,
        "auxiliary_head": [HEAD],
        "test_cfg": {"mode": "whole"},
    },
    "train_dataloader": {
        "batch_size": 8,
        "dataset": {"type": "CamVidDataset", "pipeline": [{"type": "RandomFlip", "prob": 0.5}]},
    },
    "val_dataloader": {"dataset": {"type": "CamVidDataset"}},
    "train_cfg": {"max_iters": 100},
    "optim_wrapper": {"optimizer": {"type": "SGD", "lr": 0.05, "weight_decay": 0.0005}},
    "param_scheduler": [{"type": "PolyLR", "by_epoch": False}],
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model.backbone.depth": 101},
        {"model.backbone.new_option": True},
        {"optim_wrapper.optimizer": {"lr": 1, "nesterov": True}},
        {"train_dataloader.dataset.pipeline": {"0": {"prob": 0}}},
        {"model.backbone.style": 3},
        {"custom_hooks": [{"type": "EMAHook"}]},
        {"model.auxiliary_head": None},
        {"model.decode_head": [HEAD, HEAD]},
    ],
)
def test_changes_that_training_reads_pass(changes):
    check_changes(BASE, changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"optim_wraper.optimizer.lr": 1}, "config.optim_wraper.optimizer.lr: training reads no 'optim_wraper' of a"),
        ({"load_from": "a.pth"}, "config.load_from: training reads no 'load_from'"),
        ({"train_dataloader.dataset.data_root": "x"}, "data_root says where a run is executed"),
        ({"train_dataloader": {"num_workers": 8}}, "num_workers says where a run is executed"),
        ({"optim_wrapper.optimizer.lr": "1e-2"}, "expected a number such as 0.05, got '1e-2'; YAML reads 1e-2 as text"),
        ({"optim_wrapper": {"optimizer": {"lr": True}}}, "config.optim_wrapper.optimizer.lr: expected a number such"),
        ({"train_dataloader.dataset.pipeline.0.prob": "often"}, "train_dataloader.dataset.pipeline.0.prob: expected"),
        ({"train_cfg": {"max_iters": 1.5}}, "config.train_cfg.max_iters: expected a whole number >= 1, got 1.5"),
        ({"model.backbone": None}, "config.model.backbone: missing; a training needs it"),
        (
            {"model.auxiliary_head.0": 3},
            "model.auxiliary_head: expected a dict with a type, or a list of them, got [3]",
        ),
        ({"val_dataloader.dataset": None}, "config.val_dataloader.dataset: missing; a training needs it"),
        (
            {"optim_wrapper.optimizer": {"_delete_": True, "type": "Adam"}},
            "config.optim_wrapper.optimizer.lr, optim_wrapper.optimizer.weight_decay: missing",
        ),
    ],
)
def test_changes_without_effect_or_sense_are_refused(changes, expected):
    with pytest.raises(UserError, match=re.escape(expected)):
        check_changes(BASE, changes)
