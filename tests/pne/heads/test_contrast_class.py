"""The generated head class: copies, registry, initial weights, synchronised batch norm."""

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from head_models import (
    CLASSES,
    PNE,
    add_contrast,
    batch,
    build,
    config,
    contrast_head,
    contrast_loss,
    data_samples,
    head,
)
from mmengine.config import ConfigDict
from mmengine.model import revert_sync_batchnorm
from mmseg.models.decode_heads import ASPPHead, FCNHead
from mmseg.registry import MODELS
from torch import Tensor, nn

from pne.heads import ContrastHead

FCN = head("FCNHead", 16, 2, channels=6, num_convs=1, concat_input=False)
FEATURES = tuple(torch.randn(2, channels, 8, 8) for channels in (4, 8, 16))


def test_is_an_instance_of_both_heads_and_one_class_per_base() -> None:
    first, second = (MODELS.build(add_contrast(FCN)) for _ in range(2))
    assert isinstance(first, FCNHead)
    assert isinstance(first, ContrastHead)
    assert type(first) is type(second)
    assert type(first).__name__ == "ContrastFCNHead"
    assert first.base_class is FCNHead
    assert type(contrast_head(build("ASPPHead", contrast=True))).__bases__ == (ContrastHead, ASPPHead)


@pytest.mark.parametrize("base", ["FCNHead", "mmseg.FCNHead", FCNHead])
def test_base_by_name_scope_or_class(base: object) -> None:
    assert MODELS.build({**add_contrast(FCN), "base": base}).base_class is FCNHead


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_continue_alike(copied) -> None:
    model = build("EncHead", contrast=True)
    model(*batch(), mode="loss")
    other = copied(model)
    assert type(contrast_head(other)) is type(contrast_head(model))
    results = []
    for one in (model, other):
        torch.manual_seed(0)
        results.append(one(*batch(), mode="loss"))
    assert results[0].keys() == results[1].keys()
    assert all(torch.equal(value, results[1][key]) for key, value in results[0].items())


def test_projection_follows_the_tapped_features_before_dropout() -> None:
    model = build("FCNHead-HRNet", contrast=True)
    made, seen = contrast_head(model), {}
    made.dropout.register_forward_pre_hook(lambda _, inputs: seen.update(features=inputs[0]))
    made.conv_seg.register_forward_hook(lambda _, inputs, output: seen.update(logits=output))
    made.contrast.register_forward_pre_hook(lambda _, inputs: seen.update(tapped=inputs))
    _, samples = data = batch()
    model(*data, mode="loss")
    features, logits, labels = seen["tapped"]
    assert features is seen["features"]
    assert logits is seen["logits"]
    assert torch.equal(labels, torch.cat([sample.gt_sem_seg.data for sample in samples]))
    assert made.contrast.projection.reduce.in_channels == features.shape[1] == 60


@pytest.mark.parametrize(("name", "channels"), [("ASPPHead", 32), ("FCNHead-HRNet", 60), ("OCRHead", 60)])
def test_the_projection_can_tap_the_backbone(name: str, channels: int) -> None:
    """One map, several at one size, and those of the second head of a cascade."""
    contrast = {"loss": {"type": "PixelContrastLoss"}, "projection": {"taps": "backbone"}}
    model, seen = build(name, contrast), {}
    made = contrast_head(model)
    model.backbone.register_forward_hook(lambda _, inputs, maps: seen.update(maps=maps))
    made.contrast.register_forward_pre_hook(lambda _, inputs: seen.update(tapped=inputs))
    losses = model(*batch(), mode="loss")
    features, logits, _ = seen["tapped"]
    assert torch.equal(features, made._transform_inputs(seen["maps"]))
    assert logits.shape[2:] == features.shape[2:]
    assert features.shape[1] == channels == made.contrast.projection.reduce.in_channels
    contrast_loss(losses).backward()
    assert any(p.grad is not None and p.grad.any() for p in model.backbone.parameters())
    assert all(p.grad is None for key, p in made.named_parameters() if not key.startswith("contrast."))


class WideHead(FCNHead):
    """Classifies twice as many channels as it is said to have."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.conv_seg = nn.Conv2d(2 * self.channels, self.out_channels, kernel_size=1)

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        features = self._forward_feature(inputs)
        return self.cls_seg(torch.cat([features, features], dim=1))


def test_projection_takes_the_channels_that_are_classified() -> None:
    made = MODELS.build({**add_contrast(FCN), "base": WideHead})
    assert made.loss(FEATURES, batch()[1], {})["loss_contrast"].isfinite()
    assert made.contrast.projection.reduce.in_channels == 2 * FCN["channels"]


@pytest.mark.parametrize("ignore_index", [255, None, 0])
def test_ignore_index_is_that_of_the_head(ignore_index: int | None) -> None:
    made, seen = MODELS.build({**add_contrast(FCN), "ignore_index": ignore_index}), {}
    made.contrast.register_forward_pre_hook(lambda _, i, kwargs: seen.update(kwargs), with_kwargs=True)
    labels = torch.zeros(2, 8, 8, dtype=torch.int64)
    if ignore_index is None:  # the cross entropy of mmseg takes no None
        made.loss_by_feat = lambda logits, samples: {"loss": logits.sum()}
    made.loss(FEATURES, data_samples(labels), {})
    assert seen["ignore_index"] == (255 if ignore_index is None else ignore_index)


BY_LAYER = {"init_cfg": {"type": "Kaiming", "layer": "Conv2d"}}
SMALL = {"num_classes": CLASSES, "in_channels": 16, "in_index": 2, "channels": 6}
DDR = {"type": "DDRHead", **SMALL, "loss_decode": [{"type": "CrossEntropyLoss"}] * 2}  # initialises self.modules()
BY_LAYER_FCN = {"type": "FCNHead", **SMALL, **BY_LAYER}
WHOLE = [{**config("DAHead", contrast), **BY_LAYER} for contrast in (None, True)]


@pytest.mark.parametrize("settings", [(DDR, add_contrast(DDR)), (BY_LAYER_FCN, add_contrast(BY_LAYER_FCN)), WHOLE])
def test_initialising_leaves_the_branch_and_the_global_generator(settings: Sequence[dict]) -> None:
    results = []
    for of in settings:
        torch.manual_seed(3)
        made = MODELS.build(ConfigDict(of))
        before = {key: value.clone() for key, value in made.state_dict().items() if key.startswith("contrast.")}
        made.init_weights()
        results.append((made.state_dict(), torch.get_rng_state(), before))
    (expected, expected_state, _), (got, state, before) = results
    assert torch.equal(state, expected_state)
    assert all(torch.equal(value, got[key]) for key, value in expected.items())
    assert before or settings is WHOLE  # a whole model initialises its branch by layer, too
    assert all(torch.equal(value, got[key]) for key, value in before.items())


def test_seed_of_the_branch_changes_the_projection_alone() -> None:
    models = [build("PSPHead", {"loss": PNE, "seed": seed}).state_dict() for seed in (0, 1)]
    differing = {key for key, value in models[0].items() if not torch.equal(value, models[1][key])}
    assert differing == {f"decode_head.contrast.projection.{layer}.weight" for layer in ("reduce", "expand")}


def test_batch_norm_can_be_synchronised_and_back() -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(build("ASPPHead", contrast=True))
    assert isinstance(contrast_head(model).contrast.projection.norm, nn.SyncBatchNorm)
    assert any(isinstance(module, nn.SyncBatchNorm) for module in model.backbone.modules())
    assert contrast_loss(revert_sync_batchnorm(model)(*batch(), mode="loss")) > 0


def test_a_head_of_synchronised_batch_norm_builds() -> None:
    made = MODELS.build(add_contrast({**FCN, "norm_cfg": {"type": "SyncBN", "requires_grad": True}}))
    assert isinstance(made.contrast.projection.norm, nn.SyncBatchNorm)


class RegisteredLoss(nn.Module):
    """An own loss that a user registers."""

    def forward(self, embeddings: Tensor, logits: Tensor, labels: Tensor, ignore_index=255, generator=None) -> Tensor:
        return embeddings.square().mean()


def test_own_loss_by_class() -> None:
    model = build("PSPHead", {"loss": {"type": RegisteredLoss}, "weight": 2})
    losses = model(*batch(), mode="loss")
    assert {key for key in losses if "contrast" in key} == {"decode.loss_contrast", "decode.contrast_gradient_norm"}
    assert losses["decode.loss_contrast"].item() > 0


def test_memory_takes_the_classes_of_the_head() -> None:
    model = build("PSPHead", {"loss": {"type": "PixelContrastLoss", "memory_size": 4}, "projection": {"channels": 6}})
    assert any(len(buffer) == CLASSES for key, buffer in model.named_buffers() if ".contrast.loss." in key)
    for _ in range(2):
        assert contrast_loss(model(*batch(), mode="loss")).isfinite()
