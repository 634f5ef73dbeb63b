"""A run's config adapted to the machine."""

import pytest
from mmseg.registry import MODELS

from pne.engine.runner import (
    Bfloat16OptimWrapper,
    ResumableTrainLoop,
    micro_batches,
    per_process_batch,
    plain_model,
    prepare,
    register,
    split,
)
from pne.errors import UserError

PRETRAINED = {"type": "Pretrained", "checkpoint": "https://example.org/resnet.pth"}


def config(**changes: object) -> dict:
    head = {"type": "ContrastHead", "base": "FCNHead", "contrast": {"start": 10, "weight": 1.0}, "channels": 4}
    return {
        "model": {"backbone": {"type": "ResNet", "init_cfg": PRETRAINED}, "decode_head": [{"type": "FCNHead"}, head]},
        "train_cfg": {"type": "IterBasedTrainLoop", "max_iters": 20},
        "optim_wrapper": {"type": "OptimWrapper", "optimizer": {"type": "SGD", "lr": 0.1}},
        "train_dataloader": {"batch_size": 8},
        "test_dataloader": {"batch_size": 1},
        **changes,
    }


def prepared(config: dict, **changes: object) -> dict:
    settings = {"seed": 3, "iterations": 20, "precision": "fp32", "per_process": 4, "parts": 2, "workers": 1}
    return prepare(config, **{**settings, **changes})


@pytest.mark.parametrize(("batch", "world", "expected"), [(8, 1, 8), (8, 4, 2), (3, 3, 1)])
def test_the_global_batch_is_kept(batch: int, world: int, expected: int) -> None:
    assert per_process_batch(batch, world) == expected


def test_a_batch_that_cannot_be_split_names_what_can() -> None:
    with pytest.raises(UserError, match="8 images cannot be split evenly over 3 processes; use one of 1, 2, 4, 8"):
        per_process_batch(8, 3)
    with pytest.raises(
        UserError, match="6 images of a process cannot be split into parts of 4 images; use one of 1, 2, 3, 6"
    ):
        micro_batches(6, 4)


@pytest.mark.parametrize(("limit", "parts"), [(None, 1), (6, 1), (100, 1), (3, 2), (1, 6)])
def test_number_of_parts(limit: int | None, parts: int) -> None:
    assert micro_batches(6, limit) == parts


def test_parts_hold_every_image_once_in_order() -> None:
    parts = split({"inputs": list(range(6)), "data_samples": list("abcdef")}, 3)
    assert [part["inputs"] for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert [part["data_samples"] for part in parts] == [["a", "b"], ["c", "d"], ["e", "f"]]


def test_the_runner_gets_batch_parts_and_a_resumable_loop() -> None:
    original = config()
    found = prepared(original)
    assert found["train_dataloader"]["batch_size"] == 4
    assert found["train_cfg"] == {"type": ResumableTrainLoop, "max_iters": 20, "parts": 2}
    assert found["optim_wrapper"]["accumulative_counts"] == 2
    assert found["model"]["decode_head"][1]["contrast"]["start"] == 20  # in forward passes
    assert original == config()


def test_bfloat16_replaces_the_scaled_wrapper() -> None:
    amp = {"type": "AmpOptimWrapper", "dtype": "bfloat16", "loss_scale": "dynamic", "clip_grad": {"max_norm": 1.0}}
    half = prepared(config(optim_wrapper=amp), precision="bf16")["optim_wrapper"]
    assert half == {"type": Bfloat16OptimWrapper, "clip_grad": {"max_norm": 1.0}, "accumulative_counts": 2}


def test_another_number_of_iterations_is_refused() -> None:
    with pytest.raises(UserError, match=r"train_cfg.max_iters is 20, but the spec says 30"):
        prepared(config(), iterations=30)


def test_the_plain_model_has_no_branch_and_fetches_nothing() -> None:
    register({})
    plain = plain_model(config()["model"])
    assert plain["decode_head"][1] == {"type": "FCNHead", "channels": 4}
    assert plain["backbone"]["init_cfg"] is None
    assert MODELS.get("FCNHead") is not None
