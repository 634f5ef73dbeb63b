"""Two processes with gloo: every parameter takes part in each iteration, also on a rank without anchors."""

import multiprocessing
from pathlib import Path

import torch
import torch.distributed
import torch.multiprocessing
from head_models import CLASSES, batch, build, training_step
from mmengine.model import MMDistributedDataParallel

CONTRAST = {"loss": {"type": "PNELoss", "num_samples": 3, "max_anchors": 5}, "projection": {"channels": 8}}


def train(rank: int, folder: str) -> None:
    """Train two iterations with batches of their own for each rank; rank 1 sees ignored labels alone in the first."""
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    model = MMDistributedDataParallel(build("ASPPHead", CONTRAST, seed=rank), find_unused_parameters=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    model.parse_losses = model.module.parse_losses
    torch.manual_seed(rank)
    losses = []
    for iteration in range(2):
        data = batch(seed=10 * iteration + rank, ignored=rank == 1 and iteration == 0)
        losses.append(training_step(model, optimizer, *data)["decode.loss_contrast"].item())
    # the same input on both ranks: nothing but the rank distinguishes the draws
    branch = model.module.decode_head.contrast
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 8, 12, 12, generator=generator)
    logits = torch.randn(2, CLASSES, 12, 12, generator=generator)
    labels = torch.randint(0, CLASSES, (2, 12, 12), generator=generator)
    draw = branch(features, logits, labels)["loss_contrast"].item()
    gradients = {name: p.grad for name, p in model.module.named_parameters()}
    parameters = dict(model.module.named_parameters())
    torch.save((losses, draw, gradients, parameters), f"{folder}/rank{rank}.pth")
    torch.distributed.destroy_process_group()


def test_a_rank_without_anchors_does_not_block_the_other(tmp_path: Path) -> None:
    # the processes fork from one that has imported what they need
    multiprocessing.set_forkserver_preload(["mmseg.models", "pne.heads"])
    torch.multiprocessing.start_processes(train, (str(tmp_path),), nprocs=2, start_method="forkserver")
    first, second = (torch.load(tmp_path / f"rank{rank}.pth", weights_only=False) for rank in (0, 1))
    assert first[0][0] > 0
    assert second[0][0] == 0
    assert second[0][1] > 0
    assert first[1] != second[1]
    for name, gradient in first[2].items():
        assert torch.equal(gradient, second[2][name])
        assert torch.equal(first[3][name], second[3][name])
    assert any(gradient.any() for name, gradient in first[2].items() if ".contrast." in name)
