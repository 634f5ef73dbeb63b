"""The typical time of an iteration leaves out the warm-up of each process."""

import time

import numpy as np
import pytest
import torch

from pne.engine.record import StepClock, peak_memory_mib, reset_peak_memory, typical_time

CPU = torch.device("cpu")


def test_warm_up_of_every_process_is_left_out() -> None:
    slow, typical = [9.0] * 10, [1.0, 2.0, 3.0]
    ages = [*range(13), *range(13)]
    assert typical_time([*slow, *typical, *slow, *typical], ages) == 2.0


def test_short_trainings_leave_out_less() -> None:
    assert typical_time([9.0, 9.0, 9.0, 2.0], range(4)) == 2.0
    assert typical_time([9.0, 2.0], range(2)) == 2.0
    assert typical_time([9.0], range(1)) == 9.0


def test_the_clock_gives_one_time_per_iteration_and_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([0.0, 0.0, 2.0, 3.0, 10.0, 10.0, 10.5, 14.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings))
    clock = StepClock(CPU)
    for _ in range(2):
        clock.start()
        clock.fetched()
        clock.stop()
    assert clock.take() == ([3.0, 4.0], [2.0, 0.5])
    assert clock.take() == ([], [])


def test_peak_memory_sees_what_was_used_since_the_reset() -> None:
    reset_peak_memory(CPU)
    before, kind = peak_memory_mib(CPU)
    block = np.ones(200 * 2**20, dtype=np.uint8)
    after, _ = peak_memory_mib(CPU)
    assert kind == "resident_set"
    assert after - before > 0.7 * block.nbytes / 2**20
