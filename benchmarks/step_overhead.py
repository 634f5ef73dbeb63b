"""Time of a whole training step with each contrast branch against that of the plain model.

One step is what mmengine's runner does for a batch that lies on the device: forward, losses, backward, SGD step and
reading the logged values. The models are mmsegmentation's shipped configs for Cityscapes (512x1024, 2 images), and
DeepLabV3-R18 on batches as track camvid's (352x352, 16 images), with 19 classes, batch norm of one process in place of
the synchronised one and random weights. All variants of a model share its weights, and its learning rate is next to
nothing.

Errors: a random network is wrong almost everywhere, and then there is no positive. The branch therefore gets, in place
of the logits, fixed ones of the same shape that are wrong in `ERRORS` (10 %) of the pixels: classes lie in blocks, and
each class is mistaken for three others. Everything else in the step uses the real logits.

Every round times one step of each variant, in an order that moves on by one, so that drift hits all alike. Each variant
gives one JSON line: median and quartiles of its steps, ratio of its median to that of `base`, and the quartiles of the
ratio within the rounds. A case that the budget has no time for gives a line that says so.

    python benchmarks/step_overhead.py --out benchmarks/results/step_overhead.jsonl
"""

import argparse
import copy
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mmseg
import torch
from mmengine.config import Config, ConfigDict
from mmengine.logging import MMLogger
from mmengine.structures import PixelData
from mmengine.utils import import_modules_from_strings
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample
from torch import Tensor, nn

from pne.engine.runner import set_precision
from pne.spec.identity import NUMERICS

CLASSES, ERRORS, CONFUSIONS = 19, 0.1, 3
CONFIGS = {
    "deeplabv3_r101": "deeplabv3/deeplabv3_r101-d8_4xb2-40k_cityscapes-512x1024.py",
    "fcn_hrnetv2_w48": "hrnet/fcn_hr48_4xb2-40k_cityscapes-512x1024.py",
    "ocrnet_hrnetv2_w48": "ocrnet/ocrnet_hr48_4xb2-40k_cityscapes-512x1024.py",
    "deeplabv3_r18": "deeplabv3/deeplabv3_r18-d8_4xb2-80k_cityscapes-512x1024.py",
}
BATCHES = {"deeplabv3_r18": ((352, 352), 16)}  # size and number of images
USUAL_BATCH, TINY_BATCH = ((512, 1024), 2), ((64, 128), 2)
CASES = [  # in the order of interest: a short budget leaves out the last ones
    ("deeplabv3_r101", "bf16"),
    ("deeplabv3_r101", "fp32"),
    ("fcn_hrnetv2_w48", "bf16"),
    ("ocrnet_hrnetv2_w48", "bf16"),
    ("fcn_hrnetv2_w48", "fp32"),
    ("ocrnet_hrnetv2_w48", "fp32"),
    ("deeplabv3_r18", "bf16"),
]


class ProjectionOnly(nn.Module):
    """Zero, connected to the embeddings: the cost of the projection without a loss."""

    def forward(
        self,
        embeddings: Tensor,
        logits: Tensor,
        labels: Tensor,
        ignore_index: int = 255,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return 0 with zero gradients."""
        return 0.0 * embeddings.float().mean()


CIPC = {"type": "PixelContrastLoss", "temperature": 0.1, "base_temperature": 0.07}
BRANCHES = {
    "base": None,
    "projection": {"loss": {"type": ProjectionOnly}},
    "paper": {"loss": {"type": "PNELoss", "preset": "paper"}, "weight": 1.3},
    "authors": {"loss": {"type": "PNELoss", "preset": "authors"}, "weight": 1.3},
    "asymmetric": {"loss": {"type": "AsymmetricContrastLoss"}, "weight": 1.3},
    "cipc": {"loss": CIPC, "weight": 0.1},
}


def model_config(name: str, tiny: bool) -> dict[str, Any]:
    """Read a shipped config: random weights, batch norm of one process; narrow and shallow where ``tiny``."""
    path = Path(mmseg.__file__).parent / ".mim" / "configs" / CONFIGS[name]
    model = Config.fromfile(path).model.to_dict()
    model.pop("data_preprocessor")
    model["pretrained"] = None
    model = json.loads(json.dumps(model).replace('"SyncBN"', '"BN"'))
    return _shrink(model) if tiny else model


def _shrink(model: dict[str, Any]) -> dict[str, Any]:
    backbone, factor = model["backbone"], 16
    if "extra" in backbone:
        factor = 12
        for stage in list(backbone["extra"].values())[1:]:
            stage["num_channels"] = [width // factor for width in stage["num_channels"]]
            stage.update(num_modules=1, num_blocks=[1] * stage["num_branches"])
    else:
        backbone.update(depth=min(backbone["depth"], 50), base_channels=64 // factor, stem_channels=8)
    heads = model["decode_head"] if isinstance(model["decode_head"], list) else [model["decode_head"]]
    for head in [*heads, *([model["auxiliary_head"]] if model.get("auxiliary_head") else [])]:
        wide = head["in_channels"]
        head["in_channels"] = [w // factor for w in wide] if isinstance(wide, list) else wide // factor
        head["channels"] = 16
        head.update({"ocr_channels": 8} if "ocr_channels" in head else {})
    return model


def build_variants(
    config: dict[str, Any], device: str, memory_size: int, variants: Sequence[str] = tuple(BRANCHES)
) -> dict[str, nn.Module]:
    """Build the plain model and, around its very modules, one model for each branch."""
    branches = {name: branch for name, branch in copy.deepcopy(BRANCHES).items() if name in ("base", *variants)}
    if "cipc" in branches:
        branches["cipc"]["loss"]["memory_size"] = memory_size
    torch.manual_seed(0)
    base = MODELS.build(ConfigDict(copy.deepcopy(config)))
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel("WARNING")  # standard output holds JSON lines alone
    base.init_weights()
    logger.setLevel(level)
    base.to(device).train()
    return {name: base if branch is None else _with_branch(base, config, branch) for name, branch in branches.items()}


def _with_branch(base: nn.Module, config: dict[str, Any], branch: dict[str, Any]) -> nn.Module:
    cascade = isinstance(config["decode_head"], list)
    settings = copy.deepcopy(config["decode_head"][-1] if cascade else config["decode_head"])
    plain = base.decode_head[-1] if cascade else base.decode_head
    head = MODELS.build({**settings, "type": "ContrastHead", "base": settings["type"], "contrast": dict(branch)})
    head.contrast.to(next(base.parameters()).device).train()
    head.contrast.register_forward_pre_hook(_replace_logits())
    for name, module in plain.named_children():
        setattr(head, name, module)
    other = copy.copy(base)
    other._modules = dict(base._modules)
    other.decode_head = nn.ModuleList([*base.decode_head[:-1], head]) if cascade else head
    return other


def _replace_logits() -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
    kept: dict[Any, Tensor] = {}

    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        features, logits, labels = inputs
        if logits.dtype not in kept:
            kept[logits.dtype] = logits_with_errors(labels, logits.shape[2:]).to(logits.dtype)
        return features, kept[logits.dtype], labels

    return hook


def labels_in_blocks(size: tuple[int, int], device: str, batch: int = 2) -> Tensor:
    """Draw labels (B, H, W) that are constant in a grid of 8 x 16 blocks."""
    blocks = torch.randint(0, CLASSES, (batch, 8, 16), generator=torch.Generator().manual_seed(0))
    return blocks.repeat_interleave(size[0] // 8, 1).repeat_interleave(size[1] // 16, 2).to(device)


def logits_with_errors(labels: Tensor, size: Sequence[int]) -> Tensor:
    """Make logits (B, C, h, w) that predict the resized labels but in ``ERRORS`` of the pixels."""
    generator = torch.Generator().manual_seed(1)
    resized = nn.functional.interpolate(labels[:, None].float(), tuple(size), mode="nearest").long()[:, 0].cpu()
    shift = torch.randint(1, CONFUSIONS + 1, resized.shape, generator=generator)
    wrong = torch.rand(resized.shape, generator=generator) < ERRORS
    predicted = torch.where(wrong, (resized + shift) % CLASSES, resized)
    noise = torch.randn(len(labels), CLASSES, *size, generator=generator)
    return (noise + 8 * nn.functional.one_hot(predicted, CLASSES).permute(0, 3, 1, 2)).to(labels.device)


def make_step(model: nn.Module, data: tuple[Any, ...], precision: str, device: str) -> Callable[[], float]:
    """Make the function that runs one training step and returns its seconds."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-8, momentum=0.9, weight_decay=5e-4)

    def step() -> float:
        synchronise(device)
        begin = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            losses = model(*data, mode="loss")
        total, log = model.parse_losses(losses)
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        values = [value.item() for value in log.values()]  # as the runner does in every iteration
        synchronise(device)
        seconds = time.perf_counter() - begin
        if not all(map(math.isfinite, values)):
            raise RuntimeError(f"a logged value is not finite: {dict(zip(log, values, strict=True))}")
        return seconds

    return step


def synchronise(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def make_case(
    name: str, tiny: bool, device: str, variants: Sequence[str]
) -> tuple[dict[str, nn.Module], tuple[Tensor, list[SegDataSample]]]:
    """Build the variants of a model and the batch that they see."""
    size, batch = TINY_BATCH if tiny else BATCHES.get(name, USUAL_BATCH)
    labels = labels_in_blocks(size, device, batch)
    samples = [SegDataSample(gt_sem_seg=PixelData(data=label[None])) for label in labels]
    images = torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(2)).to(device)
    memory_size = 20 if tiny else 5000  # the paper track's; similarities with 2 x 19 x 5000 vectors
    return build_variants(model_config(name, tiny), device, memory_size, variants), (images, samples)


def time_case(name: str, precision: str, args: argparse.Namespace, deadline: float) -> list[dict[str, Any]]:
    """Time all variants of a model, or say that the budget is too short."""
    models, data = make_case(name, args.tiny, args.device, args.variants)
    steps = {variant: make_step(model, data, precision, args.device) for variant, model in models.items()}
    for turn in range(args.warmup):
        seconds = sum(step() for step in steps.values())
        if turn == 0 < args.warmup - 1:
            continue  # the first steps choose algorithms and say nothing about the others
        needed = (args.warmup - 1 - turn + args.steps) * seconds
        left = deadline - time.monotonic()
        if needed > left:
            return [{"model": name, "precision": precision, "skipped": f"needs {needed:.0f} s, {left:.0f} s are left"}]
    memory = {variant: peak_memory_mib(step, args.device) for variant, step in steps.items()}
    order, times = list(steps), {variant: [] for variant in steps}
    for i in range(args.steps):
        for variant in order[i % len(order) :] + order[: i % len(order)]:
            times[variant].append(steps[variant]())
    case = {"model": name, "precision": precision, "size": list(data[0].shape[2:]), "batch": len(data[0])}
    return [{**case, **summary(variant, times), "peak_mib": memory[variant]} for variant in order]


def peak_memory_mib(step: Callable[[], float], device: str) -> float | None:
    """Run a step and return the peak of the allocated CUDA memory; None on the CPU."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    step()
    return round(torch.cuda.max_memory_allocated() / 2**20, 1) if device == "cuda" else None


def summary(variant: str, times: dict[str, list[float]]) -> dict[str, Any]:
    """Median and quartiles of a variant's steps and of its ratio to ``base``."""
    own, base = torch.tensor(times[variant]), torch.tensor(times["base"])
    quartiles = torch.tensor([0.25, 0.5, 0.75])
    first, median, third = own.quantile(quartiles).tolist()
    paired = (own / base).quantile(quartiles).tolist()
    return {
        "variant": variant,
        "steps": len(own),
        "time_s": median,
        "time_quartiles_s": [first, third],
        "ratio": median / base.quantile(0.5).item(),
        "paired_ratio": paired[1],
        "paired_ratio_quartiles": [paired[0], paired[2]],
    }


def set_up() -> None:
    """Register the models, and let CUDA compute as in a training."""
    import_modules_from_strings(["pne.heads", "mmseg.models"])
    set_precision(NUMERICS)
    torch.backends.cudnn.benchmark = NUMERICS["cudnn_benchmark"]


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    made.add_argument("--tiny", action="store_true", help="narrow models and small images: shows that it runs")
    made.add_argument("--models", nargs="+", choices=list(CONFIGS), default=list(CONFIGS))
    made.add_argument("--precisions", nargs="+", choices=("bf16", "fp32"), default=["bf16", "fp32"])
    made.add_argument("--variants", nargs="+", choices=list(BRANCHES), default=list(BRANCHES), help="beside base")
    made.add_argument("--steps", type=int, default=20, help="timed steps of each variant")
    made.add_argument("--warmup", type=int, default=10, help="steps of each variant before")
    made.add_argument("--budget-s", type=float, default=300.0, help="leave out the cases that would end later")
    made.add_argument("--out", type=Path, help="file to write the JSON lines to, beside standard output")
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Time all cases and print one JSON line for each variant as soon as its case is done."""
    args = parser().parse_args(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        parser().error("--device cuda: torch finds no CUDA device; run with --device cpu --tiny")
    deadline = time.monotonic() + args.budget_s
    set_up()
    name = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or platform.machine()
    where = {"device": name, "torch": torch.__version__, "tiny": args.tiny}
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("")
    for model, precision in CASES:
        if model not in args.models or precision not in args.precisions:
            continue
        for line in time_case(model, precision, args, deadline):
            text = json.dumps({**where, **line})
            print(text, flush=True)
            if args.out:
                with args.out.open("a") as file:
                    file.write(text + "\n")
        if args.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
