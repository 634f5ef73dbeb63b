"""The branch by itself: its randomness, its start, its norm and its projection."""

import copy
from typing import Any

import pytest
import torch
from head_models import CLASSES
from mmengine import dist
from torch import Tensor

from pne.errors import UserError
from pne.heads import ContrastBranch
from pne.heads.branch import derive_seed

GROUPS = {"type": "GN", "num_groups": 2}


def branch(loss: dict | None = None, **options: Any) -> ContrastBranch:
    loss = {"type": "PNELoss", "num_samples": 3, "max_anchors": 5} if loss is None else loss
    return ContrastBranch(in_channels=8, num_classes=CLASSES, loss=loss, projection={"channels": 6}, **options)


def inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(2, 8, 12, 12, generator=generator, requires_grad=True)
    logits = torch.randn(2, CLASSES, 12, 12, generator=generator)
    return features, logits, torch.randint(0, CLASSES, (2, 24, 24), generator=generator)


def value(of: ContrastBranch, seed: int = 0) -> float:
    return of(*inputs(seed))["loss_contrast"].item()


def test_neither_reads_nor_moves_the_global_generator() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = branch()
    values = [value(first) for _ in range(3)]
    first.apply(lambda module: torch.rand(1))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    second = branch()
    assert [value(second) for _ in range(3)] == values
    for one, other in zip(branch().state_dict().values(), first.state_dict().values(), strict=True):
        assert torch.equal(one, other) or one.ndim < 2  # statistics and the number of calls have moved


def test_seed_rank_and_call_change_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    of = branch()
    assert len({value(of) for _ in range(4)}) == 4

    def other(seed: int, rank: int) -> float:
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        made = branch(seed=seed)
        made.projection.load_state_dict(branch().projection.state_dict())
        return value(made)

    assert len({other(0, 0), other(0, 1), other(1, 0), other(1, 1)}) == 4
    assert other(1, 1) == other(1, 1)


def test_derived_seeds_do_not_collide() -> None:
    seeds = {derive_seed(s, r, c) for s in range(5) for r in range(8) for c in range(200)}
    assert len(seeds) == 5 * 8 * 200
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_call_number_survives_a_checkpoint(tmp_path) -> None:
    whole = branch()
    values = [value(whole) for _ in range(5)]
    part = branch()
    assert [value(part) for _ in range(2)] == values[:2]
    torch.save(part.state_dict(), tmp_path / "part.pth")
    resumed = branch()
    resumed.load_state_dict(torch.load(tmp_path / "part.pth"))
    assert resumed.calls.item() == 2
    assert [value(resumed) for _ in range(3)] == values[2:]
    assert value(copy.deepcopy(whole)) == value(whole)


def test_evaluation_does_not_count_as_a_call() -> None:
    of = branch()
    value(of)
    of.eval()
    assert value(of) == value(of)
    assert of.calls.item() == 1


def test_start_counts_training_calls() -> None:
    waiting, counting = branch(start=2), branch()
    for call in range(4):
        features, logits, labels = inputs()
        losses, expected = waiting(features, logits, labels), counting(*inputs())
        waiting.zero_grad()
        losses["loss_contrast"].backward()
        loss, reference = losses.pop("loss_contrast"), expected.pop("loss_contrast")
        assert losses == expected
        gradients = [features.grad, *(parameter.grad for parameter in waiting.parameters())]
        assert all(gradient is not None for gradient in gradients)
        assert loss == (reference if call >= 2 else 0)
        assert reference > 0
        assert [bool(gradient.any()) for gradient in gradients] == [call >= 2] * len(gradients)


def test_the_norm_of_the_gradient_is_measured_at_intervals() -> None:
    of = branch(weight=2.6, gradient_interval=3, start=1)
    norms = []

    def watch(loss: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        inputs[0].register_hook(lambda gradient: norms.append(gradient.norm()))

    of.loss.register_forward_pre_hook(watch)
    logged = []
    for call in range(7):
        losses = of(*inputs(seed=call))
        logged.append(losses["contrast_gradient_norm"])
        losses["loss_contrast"].backward()
    assert len(norms) == 7 + 3  # what is measured passes the hook, too, without the weight, before the weighted loss
    for call, value in enumerate(logged):
        assert not value.requires_grad
        torch.testing.assert_close(value, norms[(0, 4, 8)[call // 3]])
    torch.testing.assert_close(norms[5], norms[4] * 2.6)
    assert norms[1] == 0  # before the start
    restored = branch()
    restored.load_state_dict(of.state_dict())
    assert restored.gradient_norm == of.gradient_norm > 0
    older = {key: value for key, value in of.state_dict().items() if key != "gradient_norm"}
    branch().load_state_dict(older)


def test_weight_multiplies_the_loss() -> None:
    assert value(branch(weight=2.6)) == pytest.approx(2 * value(branch(weight=1.3)))
    assert value(branch(weight=0)) == 0


def test_memory_fills_before_start_and_belongs_to_the_branch() -> None:
    of = branch({"type": "PixelContrastLoss", "memory_size": 4}, start=100)
    before = {key: buffer.clone() for key, buffer in of.loss.state_dict().items()}
    assert value(of) == 0
    assert before
    assert any(not torch.equal(buffer, before[key]) for key, buffer in of.loss.state_dict().items())
    assert all(f"loss.{key}" in of.state_dict() for key in before)


def test_presets_and_options_reach_the_loss() -> None:
    authors = branch({"type": "PNELoss", "preset": "authors"})
    assert value(authors) != value(branch({"type": "PNELoss", "preset": "paper"}))
    assert value(branch({"type": "PNELoss", "preset": "authors", "temperature": 0.2})) != value(authors)
    assert value(branch(copy.deepcopy(authors.loss))) == value(branch({"type": "PNELoss", "preset": "authors"}))


def test_norm_is_that_of_the_head_unless_named() -> None:
    assert isinstance(branch().projection.norm, torch.nn.BatchNorm2d)
    assert isinstance(branch(default_norm_cfg=GROUPS).projection.norm, torch.nn.GroupNorm)
    options = {"loss": {"type": "PNELoss"}, "default_norm_cfg": GROUPS, "projection": {"norm_cfg": {"type": "IN"}}}
    assert isinstance(ContrastBranch(8, CLASSES, **options).projection.norm, torch.nn.InstanceNorm2d)


def test_projection_shapes() -> None:
    of = ContrastBranch(8, CLASSES, {"type": "PNELoss"}, projection={"channels": 5, "hidden": 6})
    assert of.projection.reduce.weight.shape == (6, 8, 1, 1)
    assert of.projection.expand.weight.shape == (5, 6, 1, 1)
    assert of.projection(inputs()[0]).shape == (2, 5, 12, 12)
    default = ContrastBranch(8, CLASSES, {"type": "PNELoss"})
    assert default.projection.expand.weight.shape == (256, 8, 1, 1)


def test_batch_norm_over_a_single_pixel_is_an_error() -> None:
    pixel = (torch.randn(1, 8, 1, 1), torch.randn(1, CLASSES, 1, 1), torch.zeros(1, 4, 4, dtype=torch.int64))
    with pytest.raises(UserError, match=r"BatchNorm2d needs more than one pixel.*norm_cfg=dict\(type='GN'"):
        branch()(*pixel)
    assert branch(default_norm_cfg=GROUPS)(*pixel)["loss_contrast"].item() == 0
    assert branch().eval()(*pixel)["loss_contrast"].item() == 0


def test_builds_on_the_default_device() -> None:
    with torch.device("meta"):
        assert {parameter.device.type for parameter in branch().projection.parameters()} == {"meta"}


@pytest.mark.gpu
def test_no_synchronisation_of_its_own_on_cuda() -> None:
    of = branch().cuda()
    arguments = [tensor.cuda() for tensor in inputs()]
    of(*arguments)
    state = torch.cuda.get_rng_state()
    torch.cuda.set_sync_debug_mode("error")
    try:
        of(*arguments)["loss_contrast"].backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(torch.cuda.get_rng_state(), state)
