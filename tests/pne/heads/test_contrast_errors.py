"""What a user can get wrong in a config, and what the message says."""

from typing import Any

import pytest
import torch
from head_models import PNE, add_contrast, batch, head
from mmengine.config import ConfigDict
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS
from torch.utils.checkpoint import checkpoint

from pne.errors import UserError
from pne.heads.config import classifying_heads

FCN = head("FCNHead", 4, 0, channels=4, num_convs=1, concat_input=False)


def build(contrast: Any = None, **changes: Any) -> torch.nn.Module:
    contrast = {"loss": PNE} if contrast is None else contrast
    return MODELS.build(ConfigDict({**add_contrast(FCN, contrast), **changes}))


@pytest.mark.parametrize(
    ("contrast", "message"),
    [
        (
            {"loss": PNE, "wieght": 1.0},
            r"contrast: no option 'wieght'; did you mean weight\?; allowed: .*weight, start",
        ),
        ({"weight": 1.0}, "contrast.loss is missing"),
        ([], "contrast must be a dict with keys of loss, weight"),
        ({"loss": PNE, "weight": float("nan")}, "contrast.weight: expected a finite number >= 0, got nan"),
        ({"loss": PNE, "weight": -1}, "contrast.weight: expected a finite number >= 0, got -1"),
        ({"loss": PNE, "start": 0.5}, "contrast.start: expected an integer >= 0, got 0.5"),
        ({"loss": PNE, "seed": True}, "contrast.seed: expected an integer >= 0, got True"),
        ({"loss": PNE, "projection": {"chanels": 3}}, "contrast.projection: no option 'chanels'; did you mean channel"),
        ({"loss": PNE, "projection": {"taps": "neck"}}, "taps: expected 'classifier' or 'backbone', got 'neck'"),
        ({"loss": PNE, "gradient_interval": 0}, "contrast.gradient_interval: expected an integer >= 1, got 0"),
        ({"loss": PNE, "projection": {"channels": 0}}, "contrast.projection.channels: expected an integer >= 1"),
        ({"loss": PNE, "projection": {"norm_cfg": {"type": "LN"}}}, "projection.norm_cfg: .*LN.*LN2d"),
        ({"loss": PNE, "projection": {"norm_cfg": {"type": "GN", "num_groups": 3}}}, "projection.norm_cfg: .*GN"),
        ({"loss": PNE, "type": "ContrastBrunch"}, "contrast.type: no branch 'ContrastBrunch'.*allowed: ContrastBranch"),
        ({"loss": {"type": "PNELos"}}, "contrast.loss.type: no loss 'PNELos'; did you mean PNELoss.*Asymmetric"),
        ({"loss": {"temperature": 1}}, "contrast.loss: expected a dict with a type of PNELoss, Asymmetric"),
        ({"loss": {"type": "PNELoss", "temprature": 1}}, "contrast.loss: .*temprature.*temperature"),
        ({"loss": {"type": "PNELoss", "temperature": 0}}, "contrast.loss: .*temperature"),
        ({"loss": {"type": "PNELoss", "preset": "authros"}}, "contrast.loss: .*authros.*authors"),
        ({"loss": {"type": "PixelContrastLoss", "preset": "paper"}}, "contrast.loss: .*preset"),
        ({"loss": {"type": "CrossEntropyLoss"}}, "CrossEntropyLoss is no contrast loss: its forward must take"),
    ],
)
def test_wrong_option(contrast: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"(?s){message}"):
        build(contrast)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (None, "base must name a decode head, it is missing; allowed: .*ASPPHead"),
        ("ASPHead", "no head 'ASPHead' is registered; did you mean ASPPHead.*allowed: .*UPerHead"),
        ("ResNet", "base ResNet is no decode head.*allowed: .*ASPPHead"),
        ("BaseDecodeHead", "no head 'BaseDecodeHead' is registered"),
        (BaseDecodeHead, "base BaseDecodeHead is no decode head.*allowed: .*ASPPHead"),
        ("ContrastHead", "base ContrastHead is no decode head"),
        ("Mask2FormerHead", "base Mask2FormerHead is no decode head"),
    ],
)
def test_wrong_base(base: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"(?s){message}"):
        build(base=base)


def test_binary_head_of_one_channel() -> None:
    with pytest.raises(UserError, match=r"FCNHead is binary with a single output channel.*out_channels=2"):
        build(num_classes=2, out_channels=1, threshold=0.5)


def test_head_without_pixel_classifier() -> None:
    transformer = head("SegmenterMaskTransformerHead", 4, 0, channels=4, num_layers=1, num_heads=1, embed_dims=4)
    with pytest.raises(UserError, match=r"MaskTransformerHead has no pixel classifier conv_seg; allowed: .*ASPPHead"):
        MODELS.build(add_contrast(transformer))


class HeadForTests(BaseDecodeHead):
    """Classifies its input by a way that the subclasses choose."""

    def forward(self, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        return self.classify(self._transform_inputs(inputs))


class NeverHead(HeadForTests):
    def classify(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_seg(x)


class TwiceHead(HeadForTests):
    def classify(self, x: torch.Tensor) -> torch.Tensor:
        return self.cls_seg(x) + self.cls_seg(x[:, :, :4, :4]).mean()


class FlatHead(HeadForTests):
    def classify(self, x: torch.Tensor) -> torch.Tensor:
        return self.cls_seg(x.flatten(2)).unflatten(2, x.shape[2:])

    def cls_seg(self, feat: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bcn,kc->bkn", feat, self.conv_seg.weight[:, :, 0, 0])


class ReentrantHead(HeadForTests):
    def classify(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.cls_seg, x, use_reentrant=True)


class CheckpointHead(HeadForTests):
    def classify(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.classify_later, x, use_reentrant=False)

    def classify_later(self, x: torch.Tensor) -> torch.Tensor:
        return self.cls_seg(x * 2)


class PreviewHead(HeadForTests):
    """Looks at its own prediction without gradient first."""

    def classify(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            preview = self.cls_seg(x * 3)
        return self.cls_seg(x) + 0 * preview.mean()


def losses(
    base: type[BaseDecodeHead], projection: dict[str, Any]
) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.nn.Module]:
    plain = {"type": base, "in_channels": 4, "channels": 4, "num_classes": 5, "dropout_ratio": 0}
    made = MODELS.build(add_contrast(plain, {"loss": PNE, "projection": projection}))
    features = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    return features, made.loss((features,), batch()[1], {}), made


class DoubledHead(HeadForTests):
    """Classifies at twice the size of its input."""

    def classify(self, x: torch.Tensor) -> torch.Tensor:
        return self.cls_seg(torch.nn.functional.interpolate(x, scale_factor=2))


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (NeverHead, "NeverHead never calls cls_seg while its loss is computed; allowed: .*ASPPHead, .*UPerHead"),
        (TwiceHead, r"TwiceHead calls cls_seg 2 times in one loss, .*\(2, 4, 8, 8\), \(2, 4, 4, 4\)"),
        (FlatHead, r"FlatHead calls cls_seg on features of shape \(2, 4, 64\).*expected maps \(B, channels, h, w\)"),
        (ReentrantHead, "ReentrantHead calls cls_seg without gradient.*use_reentrant=False"),
        (DoubledHead, r"DoubledHead no single map of the size of its logits \(2, 5, 16, 16\)"),
    ],
)
def test_head_that_cannot_be_tapped(base: type[BaseDecodeHead], message: str) -> None:
    with pytest.raises(UserError, match=message):
        losses(base, {"taps": "backbone"} if base is DoubledHead else {})


def test_a_head_that_takes_several_maps_cannot_be_tapped_at_the_backbone() -> None:
    several = head("UPerHead", (4, 8), (0, 1), pool_scales=(1, 2))
    with pytest.raises(UserError, match=r"projection\.taps: the decode head takes several maps"):
        MODELS.build(add_contrast(several, {"loss": PNE, "projection": {"taps": "backbone"}}))


@pytest.mark.parametrize("base", [CheckpointHead, PreviewHead])
def test_checkpointing_and_a_preview_without_gradient_are_fine(base: type[BaseDecodeHead]) -> None:
    features, result, made = losses(base, {"channels": 6})
    result["loss_contrast"].backward()
    assert result["loss_contrast"].item() > 0
    assert features.grad.any()
    assert made.contrast.calls.item() == 1  # the recomputation of the features is no second call
    assert made._call is None


def test_an_error_in_the_loss_leaves_no_tap() -> None:
    made = build()
    with pytest.raises(IndexError):
        made.loss((), batch()[1], {})
    assert made._call is None


def test_allowed_heads_are_those_that_classify_a_map() -> None:
    allowed = classifying_heads()
    assert {"ASPPHead", "EncHead", "OCRHead", "DAHead", "UPerHead", "SegformerHead", "PIDHead"} <= set(allowed)
    assert not {"PointHead", "SegmenterMaskTransformerHead", "SideAdapterCLIPHead", "ContrastHead"} & set(allowed)
