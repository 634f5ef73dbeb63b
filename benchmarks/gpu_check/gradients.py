"""Gradients in half precision against those in float32: of each loss, and of a whole network under autocast."""

import copy

import torch
from torch import Tensor, nn

from benchmarks.gpu_check.report import Report
from benchmarks.loss import PATTERNS, SIZES, TINY, make_losses, make_predictions
from benchmarks.step_overhead import make_case, set_up

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
SCALE = 2.0**10  # of the loss, as a scaler does: gradients of one pixel would vanish in float16
LOSS_ERROR = 0.01  # rounding the result alone gives 0.002 in bfloat16
COSINE_LOST = 0.1  # with the branch, beyond what is lost without; 0.05 in bfloat16 on a CPU


def of_loss(loss: nn.Module, embeddings: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """Gradient of the embeddings, the loss as it stands: a memory is filled aside."""
    loss = copy.deepcopy(loss)
    embeddings = embeddings.detach().requires_grad_()
    draw = torch.Generator(embeddings.device).manual_seed(0)
    (SCALE * loss(embeddings, logits, labels, generator=draw)).backward()
    return embeddings.grad.float() / SCALE


def of_network(model: nn.Module, data: tuple, dtype: torch.dtype) -> Tensor:
    """Gradients of all parameters that are not the branch's, as one vector; the branch draws what it drew first."""
    model = copy.deepcopy(model)
    parameters = [value for name, value in model.named_parameters() if ".contrast." not in name]
    with torch.autocast(data[0].device.type, dtype, enabled=dtype != torch.float32):
        total, _ = model.parse_losses(model(*data, mode="loss"))
    (SCALE * total).backward()
    return torch.cat([value.grad.flatten() for value in parameters]) / SCALE


def run(report: Report) -> None:
    """Compare both."""
    device, sizes = report.device, TINY if report.tiny else SIZES
    images, dim, size, classes = (sizes[name] for name in ("images", "dim", "size", "classes"))
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(images, dim, size, size, generator=generator).to(device)
    predictions = [x.to(device) for x in make_predictions(PATTERNS[0], images, size, classes, generator)]
    for kind, dtype in HALVES.items():
        for name, loss in make_losses(classes, dim, 20).items():
            with report.attempt(f"{kind} gradient of {name}"):
                loss.to(device)(embeddings, *predictions)  # fills the memory, where there is one
                rounded = [x.to(dtype) if x.is_floating_point() else x for x in (embeddings, *predictions)]
                exact = of_loss(loss, *(x.float() if x.is_floating_point() else x for x in rounded))
                found = of_loss(loss, *rounded)
                error = ((found - exact).norm() / exact.norm()).item()
                vanished = ((found == 0) & (exact != 0)).float().mean().item()
                report.check(f"{kind} gradient of {name}", error, at_most=LOSS_ERROR, vanished=vanished)
    set_up()
    models, data = make_case("deeplabv3_r18", report.tiny, device.type, ("paper",))
    for module in models["base"].modules():
        if isinstance(module, nn.Dropout2d):
            module.p = 0.0  # masks are drawn in the precision at hand
    for kind, dtype in HALVES.items():
        what = f"{kind} gradient of a network"
        with report.attempt(what):
            cosine = {}
            for name, model in models.items():
                exact, found = (of_network(model, data, precision) for precision in (torch.float32, dtype))
                report.check(f"{what}, {name}: is finite", found.isfinite().all().item(), equal=True)
                cosine[name] = torch.cosine_similarity(exact, found, dim=0).item()
            if report.tiny:
                report.skip(f"{what}: cosine lost by the branch", "a narrow network's gradients nearly cancel")
            else:
                lost = cosine["base"] - cosine["paper"]
                report.check(f"{what}: cosine lost by the branch", lost, at_most=COSINE_LOST, cosine=cosine)
