"""What runs ask of a machine."""

from pathlib import Path

import pytest

from pne.spec import load_track


@pytest.fixture
def paper(repository: Path):
    def load(**runtime: object):
        track = load_track("paper", experiments=repository / "experiments", runtime=runtime)
        return track.declaration.resources, next(run for run in track.runs.values() if run.model == "deeplabv3_r101")

    return load


def test_time_and_memory_grow_with_the_attempt(paper) -> None:
    needs, run = paper()
    first = needs.minutes(run.model, run.iterations)
    assert first >= run.iterations * needs.seconds_per_iteration["default"] / 60
    assert needs.minutes(run.model, run.iterations, 3) == 3 * first
    assert [needs.memory(1), needs.memory(1, 3)] == [needs.memory_mb, 2 * needs.memory_mb]


def test_more_gpus_need_more_cores_and_memory(paper) -> None:
    (needs, one), (_, four) = paper(), paper(gpus=4)
    assert (one.runtime.claimed_gpus, four.runtime.claimed_gpus) == (1, 4)
    assert four.runtime.cores == 4 * one.runtime.cores == 4 * (one.runtime.threads + one.runtime.workers)
    assert needs.memory(4) == 4 * needs.memory(1)


def test_a_run_on_the_cpu_asks_for_no_gpu(paper) -> None:
    _, run = paper(device="cpu")
    assert run.runtime.claimed_gpus == 0
    assert run.runtime.cores > 0
