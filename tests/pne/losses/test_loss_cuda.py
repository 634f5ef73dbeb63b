"""On a CUDA device: the values of the CPU, and no synchronisation."""

import pytest
import torch
from loss_scenes import SETTINGS, evaluate, make_batch

from pne.losses import PNELoss

pytestmark = pytest.mark.gpu


def on_cuda(**scene):
    return tuple(x.cuda() for x in make_batch(**scene))


@pytest.mark.parametrize("name", ["paper", "raster", "hard", "asymmetric", "pixel"])
def test_equals_the_cpu(name):
    build = (SETTINGS | {"raster": lambda: PNELoss.from_preset("authors")})[name]
    expected, found = (evaluate(build(), batch) for batch in (make_batch(), on_cuda()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["paper", "asymmetric", "pixel"])
def test_never_waits_for_the_device(name):
    loss, batch = SETTINGS[name](), on_cuda(dtype=torch.bfloat16)
    evaluate(loss, batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        evaluate(loss, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_generator_of_another_device_is_an_error():
    with pytest.raises(ValueError, match="the generator must be on cuda; got one on cpu"):
        PNELoss()(*on_cuda(), generator=torch.Generator())
