"""Randomness of the contrast branch, apart from the global generators that a training shares."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


def derive_seed(seed: int, rank: int, call: int) -> int:
    """Mix the seed of a branch, the rank of its process and the number of a call into one 63-bit seed.

    Equal arguments give equal seeds on every machine and Python version; any other argument gives an unrelated one.
    """
    digest = hashlib.blake2b(f"{seed}/{rank}/{call}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def call_generator(seed: int, rank: int, call: int, device: torch.device) -> torch.Generator:
    """Make the generator of one call of the loss; it costs no transfer and no synchronisation on CUDA."""
    return torch.Generator(device=device).manual_seed(derive_seed(seed, rank, call))


@contextmanager
def global_randomness_untouched(devices: Iterable[torch.device] = ()) -> Iterator[None]:
    """Restore the global generators of torch on leaving.

    Parameters
    ----------
    devices : iterable of torch.device
        CUDA devices whose generators are restored beside that of the CPU; other devices in it are passed over.
    """
    indices = sorted({torch.cuda.current_device() if d.index is None else d.index for d in devices if d.type == "cuda"})
    with torch.random.fork_rng(devices=indices):
        yield
