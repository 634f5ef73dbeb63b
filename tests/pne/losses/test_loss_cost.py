"""No waiting for the device, no tensor of pixels x pixels, one gather."""

import pytest
import torch
from loss_scenes import make_batch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from pne.losses import AsymmetricContrastLoss, PixelContrastLoss, PNELoss, pairs, similarity

WITHOUT_WAITING = {
    "paper": lambda: PNELoss(),
    "mixed": lambda: PNELoss(anchor_sets="mixed"),
    "hard": lambda: PNELoss(negatives="hard", positive_weight="logit"),
    "random": lambda: PNELoss(negatives="random", sampling="raster", empty_negatives="anchors", reduction="set_size"),
    "asymmetric": lambda: AsymmetricContrastLoss(anchors_per_set=10, max_set_size=50),
    "pixel": lambda: PixelContrastLoss(),
    "pixel memory": lambda: PixelContrastLoss(memory_size=20, num_classes=4, channels=6),
}


def run(loss, batch):
    embeddings = batch[0].detach().requires_grad_()
    loss(embeddings, *batch[1:]).backward()
    return embeddings.grad


class Watch(TorchDispatchMode):
    """Record calls that wait for the device, the largest result, gathers, and the number of operations.

    Operations are what computes or writes something: all but views and what reads no tensor.
    """

    WAITING = ("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "unique_consecutive", "is_nonzero", "equal")

    def __init__(self):
        super().__init__()
        self.waits, self.scattered, self.largest, self.operations = [], [], 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().split("::")[1].split(".")[0]
        returns = [value.alias_info for value in func._schema.returns]
        view = any(alias is not None and not alias.is_write for alias in returns)
        self.operations += not view and name != "promote_types"
        if "scatter_add" in name:
            self.scattered.append(tuple(args[0].shape))
        masks = [x for x in args[1:2] if isinstance(x, list | tuple) for x in x if isinstance(x, torch.Tensor)]
        if name in self.WAITING or (name.startswith("index") and any(m.dtype == torch.bool for m in masks)):
            self.waits.append(name)
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


def watch(loss, batch, monkeypatch):
    transfers = []
    with monkeypatch.context() as patch:
        for name in ("tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__"):
            original = getattr(torch.Tensor, name)

            def counted(self, *args, name=name, original=original, **kwargs):
                transfers.append(name)
                return original(self, *args, **kwargs)

            patch.setattr(torch.Tensor, name, counted)
        with Watch() as observed:
            run(loss, batch)
    return observed, transfers + observed.waits


def test_the_watch_sees_what_waits(monkeypatch):
    class Waiting(torch.nn.Module):
        def forward(self, embeddings, logits, labels):
            mask = labels != 255
            return embeddings.permute(0, 2, 3, 1)[mask].sum() * float(mask.sum()) * len(labels.unique())

    _, waits = watch(Waiting(), make_batch(), monkeypatch)
    assert {"index" if "index" in waits else "nonzero", "__float__", "_unique2"} <= set(waits)


@pytest.mark.parametrize("name", WITHOUT_WAITING)
def test_most_settings_never_wait(name, monkeypatch):
    """Also with tensors without data: whatever asks for a value or lets a shape depend on one raises."""
    batch = make_batch(dtype=torch.float32)
    _, waits = watch(WITHOUT_WAITING[name](), batch, monkeypatch)
    assert waits == []
    with FakeTensorMode():
        loss = WITHOUT_WAITING[name]()
        fake = tuple(torch.empty(x.shape, dtype=x.dtype) for x in batch)
        assert run(loss, fake).shape == batch[0].shape
        with pytest.raises(DataDependentOutputException):
            fake[0].sum().item()
        with pytest.raises(DynamicOutputShapeException):
            fake[2].nonzero()


@pytest.mark.parametrize("options", [{}, {"negatives": "hard"}, {"anchor_sets": "mixed", "negatives": "random"}])
def test_the_authors_preset_waits_once(options, monkeypatch):
    loss = PNELoss.from_preset("authors", **options)
    _, waits = watch(loss, make_batch(dtype=torch.float32), monkeypatch)
    assert waits == ["tolist"]


@pytest.mark.parametrize(("preset", "anchors"), [("paper", 200), ("authors", None)])
@pytest.mark.parametrize("classes", [3, 19, 171])
@pytest.mark.parametrize("size", [48, 72])
def test_no_tensor_is_larger_than_what_is_drawn(preset, anchors, classes, size, monkeypatch):
    dim, images = 8, 2
    batch = make_batch(images, dim, classes, size, size, error_rate=0.1, ignored=0, dtype=torch.float32)
    pixels = size * size
    loss = PNELoss.from_preset(preset)
    observed, _ = watch(loss, batch, monkeypatch)
    if anchors is None:
        anchors = int((batch[1].argmax(1) != batch[2]).sum((1, 2)).max())
    samples = min(classes * 100, pixels) + 1  # one place at least for anchors that serve as their set's negatives
    inputs = images * pixels * max(dim, classes)  # a gradient or a probability map has the size of an input
    drawn = images * max((anchors + samples) * max(dim, classes), anchors * samples, anchors * 200)
    table = images * classes**2
    assert observed.largest <= max(inputs, drawn, table)
    assert observed.largest < images * pixels * pixels / 4


def test_one_gather_serves_all_pixels():
    """Each gather from the map costs a whole map in the backward pass."""
    batch = make_batch(images=2, dim=31, classes=5, dtype=torch.float32)
    for loss in (PNELoss(), PNELoss.from_preset("authors"), AsymmetricContrastLoss()):
        with Watch() as observed:
            run(loss, batch)
        assert observed.scattered.count((2, 31, 99)) == 1


OPERATIONS = {
    "paper": (PNELoss, 150, 30),
    "authors": (lambda: PNELoss.from_preset("authors"), 220, 20),
    "asymmetric": (AsymmetricContrastLoss, 125, 35),
    "hard": (lambda: PNELoss(negatives="hard"), 200, 30),
    "pixel": (PixelContrastLoss, 105, 35),
    "pixel memory": (lambda: PixelContrastLoss(memory_size=20, num_classes=19, channels=6), 215, 20),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_few_operations_are_launched(name):
    """Labels at four times the size, so that they are resized."""
    build, forward, backward = OPERATIONS[name]
    batch, loss = make_batch(dim=6, classes=19, height=16, width=32, scale=4, dtype=torch.float32), build()
    run(loss, batch)
    embeddings = batch[0].detach().requires_grad_()
    with Watch() as first:
        value = loss(embeddings, *batch[1:])
    with Watch() as second:
        value.backward()
    assert 0 < first.operations <= forward
    assert 0 < second.operations <= backward


@pytest.mark.parametrize("name", [name for name in WITHOUT_WAITING if "pixel" not in name])
def test_padding_is_spread(name, monkeypatch):
    """No pixel of the map is gathered more often than it may serve: as an anchor, a sample and padding of both."""
    counts = []
    gather = similarity.gather_pixels

    def counted(embeddings, pixel):
        counts.append(torch.zeros_like(embeddings[:, 0].flatten(1)).scatter_add_(1, pixel, torch.ones(pixel.shape)))
        return gather(embeddings, pixel)

    monkeypatch.setattr(pairs, "gather_pixels", counted)
    for labels in ("some", "none"):
        batch = make_batch(classes=4, height=16, width=32, error_rate=0.02, dtype=torch.float32)
        if labels == "none":
            batch[2].fill_(255)
        run(WITHOUT_WAITING[name](), batch)
    assert counts
    assert all(count.max() <= 6 for count in counts)
