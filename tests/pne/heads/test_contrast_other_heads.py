"""The other decode heads of mmsegmentation that can be built without compiled operators."""

import copy
from typing import Any

import pytest
import torch
from head_models import CLASSES, PNE, add_contrast, batch, head, same_with_the_branch_late
from mmengine.structures import PixelData
from mmseg.registry import MODELS

OHEM = {"type": "OhemCrossEntropy", "thres": 0.9, "min_kept": 10}
TWO = {"in_channels": (16, 16), "in_index": (2, 3)}
FOUR = {"in_channels": (16,) * 4, "in_index": (0, 1, 2, 3)}
HEADS: dict[str, dict[str, Any]] = {
    "ANNHead": {**TWO, "project_channels": 8},
    "APCHead": {"pool_scales": (1, 2)},
    "DDRHead": {"loss_decode": [OHEM] * 2},
    "DMHead": {"filter_sizes": (1, 3)},
    "DNLHead": {},
    "DepthwiseSeparableFCNHead": {},
    "EMAHead": {"ema_channels": 8, "num_bases": 4, "num_stages": 2},
    "FPNHead": {**FOUR, "feature_strides": (4, 8, 16, 32)},
    "GCHead": {},
    "ISAHead": {"isa_channels": 8, "down_factor": (2, 2)},
    "LightHamHead": {**TWO, "ham_channels": 8, "ham_kwargs": {"MD_R": 4}},
    "NLHead": {},
    "PIDHead": {"loss_decode": [{"type": "CrossEntropyLoss"}, OHEM, {"type": "BoundaryLoss"}, OHEM]},
    "SETRMLAHead": {**FOUR, "mla_channels": 2},
    "SETRUPHead": {},
    "SegformerHead": FOUR,
}


def feature_maps(name: str, training: bool) -> Any:
    """What the head takes: four maps, but of one size for a transformer, or the streams of a real-time network."""
    sizes = (16,) * 4 if "SETR" in name else (16, 8, 8, 8)
    generator = torch.Generator().manual_seed(0)
    maps = [torch.randn(2, 16, size, size, generator=generator) for size in sizes]
    if name not in ("DDRHead", "PIDHead"):
        return maps
    half = torch.randn(2, 8, 16, 16, generator=generator)
    full = maps[0]
    return ((half, full) if name == "DDRHead" else (half, full, half)) if training else full


def build(name: str, contrast: dict | None) -> torch.nn.Module:
    settings = {**head(name, 16), **copy.deepcopy(HEADS[name])}
    torch.manual_seed(0)
    made = MODELS.build(settings if contrast is None else add_contrast(settings, contrast))
    made.init_weights()
    return made


@pytest.mark.parametrize("name", HEADS)
def test_adds_the_loss_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = build(name, None)
    _, samples = batch()
    for sample in samples:
        sample.gt_edge_map = PixelData(data=torch.zeros_like(sample.gt_sem_seg.data))

    def losses_of(one: torch.nn.Module) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        return one.loss(feature_maps(name, training=True), samples, {})

    contrast = {"loss": PNE, "projection": {"channels": 8}}
    made, losses = same_with_the_branch_late(lambda: build(name, contrast), losses_of, monkeypatch)
    expected = losses_of(plain)
    assert {key for key in losses if "contrast" not in key} == expected.keys()
    assert all(torch.equal(value, losses[key]) for key, value in expected.items())
    assert losses["contrast_anchors"] > 0
    losses["loss_contrast"].backward()
    assert all(parameter.grad is not None for parameter in made.contrast.parameters())
    assert any(parameter.grad is not None for key, parameter in made.named_parameters() if "contrast" not in key)
    plain.load_state_dict(made.state_dict(), strict=False)
    outputs = []
    for one in (plain, made):
        torch.manual_seed(0)  # LightHamHead draws in evaluation, too
        with torch.no_grad():
            outputs.append(one.eval()(feature_maps(name, training=False)))
    assert torch.equal(*outputs)
    assert outputs[0].shape[1] == CLASSES
