"""Tiny segmentors of every kind of decode head, and batches for them."""

import copy
from collections.abc import Callable
from typing import Any

import mmseg.models  # noqa: F401  registers the segmentors
import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample
from tiny_runs import model_config
from torch import Tensor, nn

from pne.heads import ContrastHead

CLASSES = 5
PNE = {"type": "PNELoss"}


def resnet() -> dict:
    return model_config(None)["backbone"] | {"base_channels": 4, "stem_channels": 4}


def hrnet() -> dict:
    def stage(branches: int, block: str = "BASIC") -> dict:
        return {
            "num_modules": 1,
            "num_branches": branches,
            "block": block,
            "num_blocks": (1,) * branches,
            "num_channels": tuple(4 * 2**i for i in range(branches)),
        }

    stages = {f"stage{i}": stage(i, "BOTTLENECK" if i == 1 else "BASIC") for i in (1, 2, 3, 4)}
    return {"type": "HRNet", "norm_cfg": {"type": "BN"}, "extra": stages}


def swin() -> dict:
    return {
        "type": "SwinTransformer",
        "pretrain_img_size": 32,
        "embed_dims": 8,
        "depths": (1, 1, 1, 1),
        "num_heads": (1, 1, 1, 1),
        "window_size": 4,
        "drop_path_rate": 0.2,
    }


def head(kind: str, in_channels: Any, in_index: Any = 3, channels: int = 8, **rest: Any) -> dict:
    varied = {"type": "Normal", "std": 1.0, "override": {"name": "conv_seg"}}  # else one class is predicted everywhere
    place = {"type": kind, "in_channels": in_channels, "in_index": in_index, "channels": channels}
    common = {"num_classes": CLASSES, "norm_cfg": {"type": "BN"}, "dropout_ratio": 0.1, "align_corners": False}
    return {**place, "init_cfg": varied, **common, **rest}


CONCAT = {"input_transform": "resize_concat", "in_channels": (4, 8, 16, 32), "in_index": (0, 1, 2, 3)}
HRNET_FCN = head("FCNHead", **CONCAT, channels=60, num_convs=1, kernel_size=1, concat_input=False)
SEPARABLE = {"dilations": (1, 2), "c1_in_channels": 4, "c1_channels": 4}
MODELS_BY_NAME = {
    "ASPPHead": (resnet, [head("ASPPHead", 32, dilations=(1, 2))]),
    "DepthwiseSeparableASPPHead": (resnet, [head("DepthwiseSeparableASPPHead", 32, **SEPARABLE)]),
    "FCNHead-ResNet": (resnet, [head("FCNHead", 32, num_convs=2, concat_input=True)]),
    "FCNHead-HRNet": (hrnet, [HRNET_FCN]),
    "PSPHead": (resnet, [head("PSPHead", 32, pool_scales=(1, 2))]),
    "EncHead": (resnet, [head("EncHead", (8, 16, 32), (1, 2, 3), num_codes=4)]),
    "OCRHead": (hrnet, [HRNET_FCN, head("OCRHead", **CONCAT, channels=16, ocr_channels=8)]),
    "UPerHead": (swin, [head("UPerHead", (8, 16, 32, 64), (0, 1, 2, 3), pool_scales=(1, 2))]),
    "DAHead": (resnet, [head("DAHead", 32, pam_channels=4)]),
}
every_model = pytest.mark.parametrize("name", MODELS_BY_NAME)


def add_contrast(head_config: dict, contrast: dict | None = None) -> dict:
    """Turn the config of a head into that of a ContrastHead."""
    contrast = {"loss": PNE, "weight": 1.3, "projection": {"channels": 16}} if contrast is None else contrast
    return {**head_config, "type": "ContrastHead", "base": head_config["type"], "contrast": contrast}


def config(name: str, contrast: dict | bool | None = None) -> dict:
    """Config of a segmentor: plain where ``contrast`` is None, else with the branch on its last head."""
    backbone, heads = MODELS_BY_NAME[name]
    heads = copy.deepcopy(heads)
    if contrast is not None:
        heads[-1] = add_contrast(heads[-1], None if contrast is True else contrast)
    model = {"type": "EncoderDecoder", "decode_head": heads[0]}
    if len(heads) > 1:
        model = {"type": "CascadeEncoderDecoder", "num_stages": len(heads), "decode_head": heads}
    auxiliary = head("FCNHead", 32 if backbone is swin else 16, 2, channels=4, num_convs=1, concat_input=False)
    preprocessor = {"type": "mmseg.SegDataPreProcessor", "size": (64, 64), "seg_pad_val": 255}
    rest = {"auxiliary_head": auxiliary, "train_cfg": {}, "test_cfg": {"mode": "whole"}}
    return {**model, "backbone": backbone(), "data_preprocessor": preprocessor, **rest}


def build(name: str, contrast: dict | bool | None = None, seed: int = 0) -> nn.Module:
    """Build a segmentor under a seed and initialise its weights."""
    torch.manual_seed(seed)
    model = MODELS.build(ConfigDict(config(name, contrast)))
    model.init_weights()
    return model


def contrast_head(model: nn.Module) -> nn.Module:
    """Return the last decode head."""
    return model.decode_head[-1] if isinstance(model.decode_head, nn.ModuleList) else model.decode_head


def contrast_loss(losses: dict[str, Tensor]) -> Tensor:
    """Return the loss of the branch, whatever the prefix of its head."""
    return next(value for key, value in losses.items() if key.endswith("loss_contrast"))


def same_with_the_branch_late(
    build: Callable[[], nn.Module], losses_of: Callable[[nn.Module], dict[str, Tensor]], patch: pytest.MonkeyPatch
) -> tuple[nn.Module, dict[str, Tensor]]:
    """Check that the place of the branch changes no bit; returns the model with the branch in its place, its losses.

    It is also computed after the losses of the head, as where a head does not pass through ``loss_by_feat``.
    """

    def passed_by(self: ContrastHead, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        return super(ContrastHead, self).loss_by_feat(*args, **kwargs)

    results = []
    for late in (True, False):
        model = build()
        with patch.context() as patched:
            if late:
                patched.setattr(ContrastHead, "loss_by_feat", passed_by)
            torch.manual_seed(0)
            losses = losses_of(model)
        sum(value.sum() for key, value in losses.items() if "loss" in key).backward(retain_graph=True)
        results.append((losses, {key: parameter.grad for key, parameter in model.named_parameters()}))
        model.zero_grad()
    (late_losses, late_gradients), (losses, gradients) = results
    assert list(late_losses) == list(losses)
    assert all(torch.equal(value, losses[key]) for key, value in late_losses.items())
    for key, value in late_gradients.items():
        assert value is gradients[key] is None or torch.equal(value, gradients[key])
    return model, losses


def data_samples(labels: Tensor) -> list[SegDataSample]:
    """Wrap labels (B, H, W)."""
    meta = dict.fromkeys(("img_shape", "ori_shape", "pad_shape"), tuple(labels.shape[1:])) | {"padding_size": [0] * 4}
    return [SegDataSample(metainfo=meta, gt_sem_seg=PixelData(data=label[None])) for label in labels]


def batch(seed: int = 0, size: int = 64, ignored: bool = False) -> tuple[Tensor, list[SegDataSample]]:
    """Two random images, and labels in blocks of 8 pixels with some ignored ones, or with nothing but those."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(2, 3, size, size, generator=generator)
    labels = torch.randint(0, CLASSES, (2, size // 8, size // 8), generator=generator)
    labels = labels.repeat_interleave(8, 1).repeat_interleave(8, 2)
    labels[:, :2] = 255
    return images, data_samples(torch.full_like(labels, 255) if ignored else labels)


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, *data: Any) -> dict[str, Tensor]:
    """One optimiser step; returns the losses and statistics."""
    losses = model(*data, mode="loss")
    total, _ = model.parse_losses(losses)
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    return losses
