"""Several processes of one run, started by torchrun: who am I, agreeing on small facts, sharing results.

Facts travel over gloo, from CPU to CPU, so that no agreement waits for a GPU.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from pne.errors import UserError

T = TypeVar("T")
TIMEOUT = timedelta(hours=3)  # the slowest step that others wait for: an evaluation by one process


@dataclass(frozen=True)
class Processes:
    """The processes that train one run together."""

    rank: int
    world_size: int
    device: torch.device
    control: Any = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Return the first process's value in every process."""
        if self.world_size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in order of rank, in every process."""
        if self.world_size == 1:
            return [value]
        box: list[Any] = [None] * self.world_size
        dist.all_gather_object(box, value, group=self.control)
        return box

    def largest(self, value: int) -> int:
        """Return the largest of the processes' values."""
        return self.begin_largest(value)()

    def begin_largest(self, value: int) -> Callable[[], int]:
        """Begin to look for the largest of the processes' values; what is returned waits for it."""
        if self.world_size == 1:
            return lambda: value
        number = torch.tensor(int(value))
        work = dist.all_reduce(number, op=dist.ReduceOp.MAX, group=self.control, async_op=True)

        def found() -> int:
            work.wait()
            return int(number)

        return found

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Average a CPU tensor over the processes."""
        if self.world_size == 1:
            return values
        total = values.clone()
        dist.all_reduce(total, group=self.control)
        return total / self.world_size

    def wait(self) -> None:
        """Wait until every process has come here."""
        if self.world_size > 1:
            dist.barrier(group=self.control)


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """Turn ``auto``, ``cpu`` or ``cuda`` into a device.

    Raises
    ------
    UserError
        If CUDA is asked for where there is none, or fewer devices than processes.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError(
            f"device: cuda was asked for, but torch {torch.__version__} sees no CUDA device; run where there is a GPU "
            "and a torch built for it, or ask for the CPU (--config device=cpu), which takes weeks for a long training"
        )
    if local_rank >= torch.cuda.device_count():
        raise UserError(
            f"device: {torch.cuda.device_count()} CUDA devices are visible, but process {local_rank} of this machine "
            "needs one of its own; start fewer processes (--nproc_per_node)"
        )
    return torch.device("cuda", local_rank)


@contextmanager
def joined(wanted_device: str) -> Iterator[Processes]:
    """Join the processes that torchrun started, or stand alone without it."""
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    if world_size == 1:
        device = choose_device(wanted_device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        yield Processes(0, 1, device)
        return
    device = choose_device(wanted_device, int(os.environ["LOCAL_RANK"]))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    started_here = not dist.is_initialized()
    if started_here:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    control = dist.new_group(backend="gloo", timeout=TIMEOUT)
    try:
        yield Processes(dist.get_rank(), world_size, device, control)
    finally:
        if started_here:
            dist.destroy_process_group()
