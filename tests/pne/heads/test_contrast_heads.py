"""The branch on every kind of head: it trains all of the model, and changes nothing else."""

from itertools import groupby

import pytest
import torch
from head_models import (
    batch,
    build,
    contrast_head,
    contrast_loss,
    every_model,
    same_with_the_branch_late,
    training_step,
)
from torch import nn

from pne.heads import ContrastBranch

STATISTICS = {
    f"contrast_{name}"
    for name in ("anchors", "sets", "positive_similarity", "negative_similarity", "weight_mean", "weight_std")
}


def train(model: nn.Module, steps: int, lr: float) -> list[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    """Losses and global random state after each step; the batches are the same for equal arguments."""
    optimizer = torch.optim.SGD(model.parameters(), lr)
    torch.manual_seed(1)
    return [(training_step(model, optimizer, *batch(seed=i)), torch.get_rng_state()) for i in range(steps)]


@every_model
def test_trains_every_parameter_each_iteration(name: str) -> None:
    model = build(name, contrast=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    keys = []
    for i, ignored in enumerate((False, True, False)):
        losses = training_step(model, optimizer, *batch(seed=i, ignored=ignored))
        keys.append(set(losses))
        assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []
        contrast = contrast_loss(losses)
        assert contrast.dtype == torch.float32
        assert contrast == 0 if ignored else contrast > 0
        projection = contrast_head(model).contrast.projection
        assert all(bool(p.grad.any()) != ignored for p in projection.parameters())
    assert keys[0] == keys[1] == keys[2]
    prefix = "decode_1." if name == "OCRHead" else "decode."
    assert {f"{prefix}{key}" for key in STATISTICS} <= keys[0]


@pytest.mark.parametrize("half", [False, True])
@every_model
def test_gradient_reaches_the_backbone(name: str, half: bool) -> None:
    model = build(name, contrast=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        losses = model(*batch(), mode="loss")
    contrast = contrast_loss(losses)
    assert contrast.dtype == torch.float32
    assert contrast.isfinite()
    contrast.backward(retain_graph=True)
    assert any(p.grad is not None and p.grad.any() for p in model.backbone.parameters())
    assert all(p.grad is None for p in contrast_head(model).conv_seg.parameters())
    model.parse_losses(losses)[0].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in contrast_head(model).contrast.parameters())


@every_model
def test_has_the_weights_and_the_dropout_of_the_plain_model(name: str) -> None:
    """With a learning rate of 0 the other losses can differ by nothing but random draws."""
    models = [build(name, contrast=on) for on in (None, True)]
    plain, contrast = (model.state_dict() for model in models)
    extra = contrast.keys() - plain.keys()
    assert extra
    assert all(".contrast." in key for key in extra)
    assert all(torch.equal(value, contrast[key]) for key, value in plain.items())
    plain, contrast = (train(model, steps=3, lr=0.0) for model in models)
    for (expected, expected_state), (losses, state) in zip(plain, contrast, strict=True):
        assert torch.equal(state, expected_state)
        for key, value in expected.items():
            assert torch.equal(losses[key], value), key


def test_draws_as_the_plain_model_while_weights_move() -> None:
    plain, contrast = (train(build("ASPPHead", contrast=on), steps=4, lr=0.05) for on in (None, True))
    assert all(torch.equal(a[1], b[1]) for a, b in zip(plain, contrast, strict=True))
    assert not torch.equal(plain[-1][0]["decode.loss_ce"], contrast[-1][0]["decode.loss_ce"])


@every_model
def test_predicts_as_the_plain_model_with_its_checkpoint(name: str, tmp_path) -> None:
    contrast = build(name, contrast=True)
    train(contrast, steps=1, lr=0.01)
    torch.save(contrast.state_dict(), tmp_path / "weights.pth")
    plain = build(name, seed=1)
    left = plain.load_state_dict(torch.load(tmp_path / "weights.pth"), strict=False)
    assert left.missing_keys == []
    prefix = "decode_head.1.contrast." if name == "OCRHead" else "decode_head.contrast."
    assert left.unexpected_keys
    assert all(key.startswith(prefix) for key in left.unexpected_keys)
    images, samples = batch(seed=7)
    with torch.no_grad():
        expected, got = (m.eval()(images, samples, mode="predict") for m in (plain, contrast))
    for one, other in zip(expected, got, strict=True):
        assert torch.equal(one.seg_logits.data, other.seg_logits.data)


def test_measuring_the_gradient_changes_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    for measured in (True, False):
        if not measured:
            monkeypatch.setattr(ContrastBranch, "_measure_gradient", lambda *_: None)
        contrast = {"loss": {"type": "PixelContrastLoss", "memory_size": 4}, "gradient_interval": 1}
        model = build("ASPPHead", contrast)
        train(model, steps=3, lr=0.05)
        states.append(model.state_dict())
    norm = "decode_head.contrast.gradient_norm"
    assert states[0].pop(norm) > 0 == states[1].pop(norm)
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())


@every_model
def test_the_branch_comes_before_the_losses_of_the_head_and_changes_no_bit(name: str, monkeypatch) -> None:
    order = []

    def watched() -> nn.Module:
        model = build(name, contrast=True)
        made = contrast_head(model)
        made.contrast.register_forward_pre_hook(lambda *_: order.append("branch"))
        made.loss_decode.register_forward_pre_hook(lambda *_: order.append("losses"))
        return model

    same_with_the_branch_late(watched, lambda model: model(*batch(), mode="loss"), monkeypatch)
    assert order.count("branch") == 2
    assert [place for place, _ in groupby(order)] == ["losses", "branch", "losses"]  # late; then in its place, before
