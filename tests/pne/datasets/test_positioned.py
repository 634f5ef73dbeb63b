"""Samples depend on the seed and their position: not on workers, ranks, resumes or the process's own randomness."""

import random
from contextlib import nullcontext
from itertools import islice

import numpy as np
import pytest
import torch
from data_files import dataset_config
from mmengine.runner import Runner, set_random_seed

from pne.datasets.positioned import Draw, PositionedInfiniteSampler, PositionSeeded, sample_seed
from pne.errors import UserError


def draw_numbers() -> tuple:
    return random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002


class Numbers:
    """A data set whose samples are the random numbers drawn for them."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> tuple:
        return index, *draw_numbers()


class Broken(Numbers):
    def __getitem__(self, index: int) -> tuple:
        draw_numbers()
        raise OSError("disk gone")


def dataloader(root, workers: int = 0, batch_size: int = 4) -> dict:
    return {
        "batch_size": batch_size,
        "num_workers": workers,
        "sampler": {"type": "PositionedInfiniteSampler"},
        "dataset": {"type": "PositionSeeded", "dataset": dataset_config(root)},
    }


def batches(root, number: int, *, skip: int = 0, seed: int = 0, **settings) -> list[torch.Tensor]:
    loader = Runner.build_dataloader(dataloader(root, **settings), seed=seed)
    loader.sampler.skip(skip)
    return [torch.stack(batch["inputs"]) for batch in islice(iter(loader), number)]


def sampler(rank: int = 0, world_size: int = 1, **settings) -> PositionedInfiniteSampler:
    return PositionedInfiniteSampler(PositionSeeded(Numbers()), seed=3, rank=rank, world_size=world_size, **settings)


def assert_equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0)


def test_batches_are_the_same_with_any_number_of_workers(street):
    alone = batches(street, 6)
    assert_equal(batches(street, 6, workers=2), alone)
    assert_equal(batches(street, 6, workers=1), alone)


def test_batches_after_a_skip_are_those_of_the_whole_stream(street):
    whole = batches(street, 7)
    assert_equal(batches(street, 4, skip=3 * 4), whole[3:])
    assert_equal(batches(street, 4, skip=3 * 4, workers=2), whole[3:])


def test_another_seed_gives_other_batches(street):
    assert not torch.equal(batches(street, 1)[0], batches(street, 1, seed=1)[0])


def test_the_same_image_is_augmented_anew_in_every_pass():
    dataset = PositionSeeded(Numbers())
    seen = [dataset[draw] for draw in islice(iter(sampler()), 21)]
    assert len({value for _, *values in seen for value in values}) == 3 * 21


@pytest.mark.parametrize("world_size", [2, 3, 4, 9])
def test_ranks_share_the_stream_of_one(world_size):
    alone = list(islice(iter(sampler()), 36))
    shares = [list(islice(iter(sampler(r, world_size)), 36 // world_size)) for r in range(world_size)]
    together = [draw for turn in zip(*shares, strict=True) for draw in turn]
    assert together == alone


def test_rank_and_world_size_are_those_of_the_process_group(monkeypatch):
    monkeypatch.setattr("pne.datasets.positioned.get_dist_info", lambda: (1, 4))
    own = PositionedInfiniteSampler(PositionSeeded(Numbers()), seed=3)
    assert list(islice(iter(own), 9)) == list(islice(iter(sampler(1, 4)), 9))


@pytest.mark.parametrize("skipped", [0, 1, 6, 7, 8, 20])
@pytest.mark.parametrize("world_size", [1, 2, 9])
def test_skip_counts_the_elements_of_the_own_rank(skipped, world_size):
    rank = world_size - 1
    resumed = sampler(rank, world_size)
    resumed.skip(skipped)
    whole = list(islice(iter(sampler(rank, world_size)), 40))
    assert list(islice(iter(resumed), 40 - skipped)) == whole[skipped:]


def test_every_pass_shows_every_sample_once():
    stream = [draw.index for draw in islice(iter(sampler()), 70)]
    laps = [stream[i : i + 7] for i in range(0, 70, 7)]
    assert all(sorted(lap) == list(range(7)) for lap in laps)
    assert len({tuple(lap) for lap in laps}) > 5
    assert [draw.index for draw in islice(iter(sampler(shuffle=False)), 9)] == [0, 1, 2, 3, 4, 5, 6, 0, 1]


def test_positions_have_seeds_of_their_own():
    seeds = {sample_seed(seed, position) for seed in range(20) for position in range(500)}
    assert len(seeds) == 10_000
    assert all(0 <= seed < 2**64 for seed in seeds)


@pytest.mark.parametrize(
    ("data", "outcome"), [(Numbers(), nullcontext()), (Broken(), pytest.raises(OSError, match="disk gone"))]
)
def test_loading_leaves_the_randomness_of_the_process_alone(data, outcome):
    set_random_seed(1)
    expected = draw_numbers()
    set_random_seed(1)
    with outcome:
        PositionSeeded(data)[Draw(0, 0, 99)]
    assert draw_numbers() == expected


def test_wrapper_shows_the_data_set_inside(street):
    wrapped = Runner.build_dataloader(dataloader(street), seed=0).dataset
    assert wrapped.metainfo["classes"][0] == "sky"
    assert len(wrapped) == 200
    assert not hasattr(wrapped, "no_such_thing")


def test_misuse_is_refused_with_the_remedy(street):
    with pytest.raises(UserError, match=r"wrapped as dict\(type='PositionSeeded', dataset=\.\.\.\), got Numbers"):
        PositionedInfiniteSampler(Numbers(), seed=0)
    with pytest.raises(TypeError, match="expects a Draw from PositionedInfiniteSampler, got 3"):
        PositionSeeded(Numbers())[3]
    with pytest.raises(ValueError, match="0 or more, got -1"):
        sampler().skip(-1)
    with pytest.raises(UserError, match="training data set is empty"):
        PositionedInfiniteSampler(PositionSeeded([]), seed=0)
