"""Values and gradients of the original implementations and of the paper's equations, stored beside the repository."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from pne.losses import AsymmetricContrastLoss, PNELoss
from pne.losses.functional import pixel_contrast

COUNTS = {"pne_authors": 12, "pne_paper": 2, "asymmetric": 1, "cipc": 10}


def oracles(shared: Path, kind: str) -> Iterator[tuple[str, Mapping[str, np.ndarray], dict]]:
    """Yield name, arrays and options of each stored case."""
    files = sorted((shared / "oracles").glob(f"{kind}_*.npz"))
    assert len(files) >= COUNTS[kind], f"expected at least {COUNTS[kind]} files {kind}_*.npz in {shared / 'oracles'}"
    for path in files:
        data = np.load(path)
        yield path.name, data, json.loads(str(data["options"]))


def compare(name: str, loss: torch.Tensor, of: torch.Tensor, expected: float, expected_gradient: np.ndarray) -> None:
    loss.backward()
    value, gradient, exact = loss.item(), of.grad.numpy(), of.dtype == torch.float64
    if abs(expected) < 1e-6:  # nothing to contrast: the original leaves a trace of the connected graph
        assert value == 0, name
        assert not gradient.any(), name
        return
    tolerance = {"rel": 0, "abs": 1e-9} if exact else {"rel": 1e-4}
    assert value == pytest.approx(expected, **tolerance), name
    error = np.abs(gradient - expected_gradient).max() / np.abs(expected_gradient).max()
    assert error <= (2e-6 if exact else 1e-4), f"{name}: gradient off by {error:.2g} of its largest entry"


def build(kind: str, options: dict) -> torch.nn.Module:
    if kind == "pne_authors":
        assert options["cal_gate"] == [0, 199]
        patch = options["patch_size"]
        preset = {"temperature": options["temp"], "num_samples": patch, "anchors_per_set": patch}
        return PNELoss.from_preset("authors", **preset)
    if kind == "pne_paper":
        weight = None if options["weight"] == "none" else options["weight"]
        return PNELoss(temperature=options["temperature"], positive_weight=weight)
    return AsymmetricContrastLoss(temperature=options["temperature"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["pne_authors", "pne_paper", "asymmetric"])
def test_equals_the_stored_losses_of_misclassified_pixels(shared, kind, dtype):
    for name, data, options in oracles(shared, kind):
        loss = build(kind, options)
        embeddings = torch.from_numpy(data["embeddings"]).to(dtype).requires_grad_()
        logits = torch.from_numpy(data["logits"]).to(dtype)
        value = loss(embeddings, logits, torch.from_numpy(data["labels"]), ignore_index=options["ignore_index"])
        factor = options.get("loss_weight", 1.0)
        expected = float(data["loss_float64"] if "loss_float64" in data else data["loss"]) / factor
        compare(name, value, embeddings, expected, data["grad_embeddings"] / factor)
        assert loss.statistics["sets"] == int(data["num_sets"]), name
        if kind != "pne_authors":
            assert loss.statistics["anchors"] == int(data["num_anchor_pixels"]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_stored_pixel_contrasts(shared, dtype):
    for name, data, options in oracles(shared, "cipc"):
        vectors = torch.from_numpy(data["X"]).to(dtype).requires_grad_()
        memory = torch.from_numpy(data["memory"]).to(dtype) if options["memory"] else None
        temperatures = {key: options[key] for key in ("temperature", "base_temperature")}
        value = pixel_contrast(vectors, torch.from_numpy(data["y"]), memory, **temperatures)
        compare(name, value, vectors, float(data["loss_float64"]), data["grad_X"])
