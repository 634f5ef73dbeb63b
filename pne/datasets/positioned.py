"""Samples whose randomness depends on the seed and their place in the stream, and on nothing else.

The sampler hands out, with every index, a seed made from the run's seed and the sample's global position; the data
set wrapper draws that sample's augmentation from it. A run that was resumed, uses another number of worker processes,
or is split over other numbers of ranks or micro-batches sees exactly the same samples.
"""

import random
from collections.abc import Iterator, Sequence, Sized
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.dist import get_dist_info, sync_random_seed
from mmengine.registry import DATA_SAMPLERS
from mmseg.registry import DATASETS
from numpy.random import MT19937, RandomState, SeedSequence
from torch.utils.data import Sampler

from pne.datasets.files import naming_files
from pne.errors import UserError


class Draw(NamedTuple):
    """One element of the stream: where it stands, which sample it is, and the seed of its augmentation."""

    position: int
    index: int
    seed: int


@DATA_SAMPLERS.register_module()
class PositionedInfiniteSampler(Sampler):
    """Endless stream of shuffled passes over a data set, each element with its global position and own seed.

    Position p goes to rank p mod world size, as in mmengine's ``InfiniteSampler``: batch k of all ranks together is
    the same set of samples for every number of ranks with the same global batch size.

    Parameters
    ----------
    dataset : Sized
        The data set, a `PositionSeeded`.
    shuffle : bool
        Shuffle every pass, or keep the order of the data set.
    seed : int, optional
        The run's seed; mmengine passes it. None: a common random one for all ranks.
    rank, world_size : int, optional
        Share of the stream; those of the process group by default.
    """

    def __init__(
        self,
        dataset: Sized,
        shuffle: bool = True,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        own_rank, own_size = get_dist_info()
        self.rank = own_rank if rank is None else rank
        self.world_size = own_size if world_size is None else world_size
        self.size = len(dataset)
        if self.size == 0:
            raise UserError("the training data set is empty: expected at least one image; check data_root and split")
        if not hasattr(dataset, "takes_draws"):
            raise UserError(
                "PositionedInfiniteSampler needs the data set wrapped as dict(type='PositionSeeded', dataset=...), "
                f"got {type(dataset).__name__}"
            )
        self.shuffle = shuffle
        self.seed = sync_random_seed() if seed is None else seed
        self._start = 0

    def __iter__(self) -> Iterator[Draw]:
        """Yield this rank's elements, from the start or from where `skip` put it."""
        for turn in count(self._start):
            position = self.rank + turn * self.world_size
            lap, place = divmod(position, self.size)
            if turn == self._start or place < self.world_size:  # a new pass begins
                order = self._order(lap)
            yield Draw(position, int(order[place]), sample_seed(self.seed, position))

    def _order(self, lap: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.size)
        return RandomState(MT19937(SeedSequence([self.seed, 0, lap]))).permutation(self.size)

    def skip(self, num_samples: int) -> None:
        """Start at this rank's element ``num_samples`` (counted from the stream's start); mmengine calls it to resume.

        Raises
        ------
        ValueError
            If ``num_samples`` is negative.
        """
        if num_samples < 0:
            raise ValueError(f"num_samples must be 0 or more, got {num_samples}")
        self._start = num_samples

    def __len__(self) -> int:
        """Size of the data set; the stream itself has no end."""
        return self.size

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the stream knows no epochs."""


def sample_seed(seed: int, position: int) -> int:
    """Return the 64-bit seed of the sample at a global position."""
    return int(SeedSequence([seed, 1, position]).generate_state(1, np.uint64)[0])


@DATASETS.register_module()
class PositionSeeded:
    """A data set that prepares each sample with the random numbers of its `Draw`.

    Python's, numpy's and torch's (CPU) generators are seeded for the one sample and put back afterwards, so that
    loading data leaves no trace in the process's own randomness, such as dropout.

    Parameters
    ----------
    dataset : dict or data set
        What is wrapped; everything else (metainfo, length, ...) is passed through.
    """

    takes_draws = True

    def __init__(self, dataset: dict | Any) -> None:
        self.dataset = DATASETS.build(dataset) if isinstance(dataset, dict) else dataset

    def __getitem__(self, draw: Draw) -> Any:
        """Return the sample ``draw.index``, augmented from ``draw.seed``."""
        return self.__getitems__([draw])[0]

    def __getitems__(self, draws: Sequence[Draw]) -> list[Any]:
        """Return the samples of a batch; saving and restoring the generators takes longer than seeding them."""
        python, legacy, tensors = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        try:
            return [self._prepared(draw) for draw in draws]
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002
            torch.set_rng_state(tensors)

    def _prepared(self, draw: Draw) -> Any:
        if not isinstance(draw, Draw):
            raise TypeError(f"PositionSeeded expects a Draw from PositionedInfiniteSampler, got {draw!r}")
        # Python's and numpy's generators are the same algorithm: the same key would give the same numbers.
        random.seed(draw.seed)
        np.random.seed([1, draw.seed & 0xFFFFFFFF, draw.seed >> 32])  # noqa: NPY002
        torch.default_generator.manual_seed(draw.seed)  # torch.manual_seed would reseed CUDA too
        with naming_files(self.dataset, draw.index):
            return self.dataset[draw.index]

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name == "dataset" or name.startswith("__"):  # not there yet while unpickling
            raise AttributeError(name)
        return getattr(self.dataset, name)
