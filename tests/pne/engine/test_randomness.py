"""Random states survive a checkpoint; streams start from seed and rank."""

import random
from pathlib import Path

import numpy as np
import torch

from pne.engine import checkpoint
from pne.engine.checkpoint import deterministic_on_cpu, random_state, restore_random_state, seed_streams

CPU = torch.device("cpu")


def draw() -> tuple:
    numbers = np.random.rand(3).tolist(), np.random.randn(1).tolist()  # noqa: NPY002
    return random.random(), random.gauss(0, 1), *numbers, torch.rand(3).tolist(), torch.randn(1).tolist()


def test_the_streams_go_on_after_a_checkpoint(tmp_path: Path) -> None:
    seed_streams(5, 0)
    draw()  # leaves half of a Gaussian pair waiting in two of the streams
    checkpoint.save(tmp_path / "iter_1.pth", random_state(CPU))
    expected = [draw() for _ in range(3)]
    seed_streams(6, 0)
    restore_random_state(checkpoint.load(tmp_path / "iter_1.pth"), CPU)
    assert [draw() for _ in range(3)] == expected


def test_seed_and_rank_make_the_streams() -> None:
    drawn = {}
    for seed, rank in ((0, 0), (0, 1), (1, 0), (0, 0)):
        seed_streams(seed, rank)
        drawn.setdefault((seed, rank), []).append(draw())
    assert drawn[0, 0][0] == drawn[0, 0][1]
    assert len({numbers[0][0] for numbers in drawn.values()}) == 3


def test_determinism_ends_with_the_block() -> None:
    with deterministic_on_cpu(CPU):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
