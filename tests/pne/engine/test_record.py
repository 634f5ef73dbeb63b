"""Scalars, time and memory of a training: read in bulk, checked, averaged, summarised."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from pne.engine import checkpoint
from pne.engine.command import DivergenceError
from pne.engine.processes import Processes
from pne.engine.record import History, Record, StepClock, peak_memory_mib, reset_peak_memory, typical_time

CPU = torch.device("cpu")
ALONE = Processes(0, 1, CPU)


def scalars(loss: float, contrast: float | None = None, anchors: float = 5.0) -> dict[str, torch.Tensor]:
    values = {"loss": loss, "decode.loss_ce": loss, "decode.acc_seg": 50.0}
    if contrast is not None:
        values |= {"decode.loss_contrast": contrast, "decode.contrast_anchors": anchors}
        values |= {"decode.contrast_weight_std": contrast / 10}
    return {name: torch.tensor(value) for name, value in values.items()}


def filled(record: Record, rows: list[dict[str, torch.Tensor]], every: int = 4, first: int = 0) -> Record:
    for index, row in enumerate(rows, start=first):
        record.note(index, row)
        if (index + 1) % every == 0 or index == first + len(rows) - 1:
            record.read([0.5] * len(record._unread), [0.125] * len(record._unread), index)
    return record


def test_the_window_holds_means_since_it_was_last_taken() -> None:
    record = Record(100, None, ALONE)
    filled(record, [scalars(1.0), scalars(2.0)])
    means = {"loss": 1.5, "decode.loss_ce": 1.5, "decode.acc_seg": 50.0, "time_s": 0.5, "data_s": 0.125}
    assert record.take_window() == means
    filled(record, [scalars(5.0)], first=2)
    assert record.take_window()["loss"] == 5.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_named_with_its_first_iteration(bad: float) -> None:
    rows = [scalars(1.0, 2.0), scalars(1.5, bad), scalars(float("nan"), bad)]
    with pytest.raises(DivergenceError, match=rf"iteration 2: .*decode.loss_ce = 1.5, loss_contrast = {bad}"):
        filled(Record(100, 0, ALONE), rows)


def test_the_summary_leaves_out_start_and_warm_up() -> None:
    rows = [scalars(1.0, 0.0, 0.0)] * 20 + [scalars(1.0, 2.0)] * 75 + [scalars(1.0, 2.0, anchors=0.0)] * 5
    summary = filled(Record(100, 20, ALONE), rows).contrast_summary()
    assert (summary.iterations, summary.active_fraction, summary.healthy) == (80, 75 / 80, True)
    assert not filled(Record(100, 0, ALONE), rows).contrast_summary().healthy
    assert Record(100, None, ALONE).contrast_summary() is None


def test_final_values_are_means_over_the_last_tenth() -> None:
    rows = [scalars(100.0, 100.0)] * 90 + [scalars(value, 2 * value) for value in (1.0, 2.0, 3.0, 4.0, 5.0)] * 2
    record = filled(Record(100, 0, ALONE), rows)
    assert record.final_losses() == {"loss": 3.0, "decode.loss_ce": 3.0, "loss_contrast": 6.0}
    final = record.contrast_summary().final_statistics
    assert final == pytest.approx({"loss_contrast": 6.0, "anchors": 5.0, "weight_std": 0.6}, rel=1e-6)


def test_a_record_goes_on_after_a_checkpoint(tmp_path: Path) -> None:
    rows = [scalars(float(index), float(index % 3)) for index in range(40)]
    whole = filled(Record(40, 3, ALONE), rows)
    for cut in (1, 17, 38):
        first = filled(Record(40, 3, ALONE), rows[:cut])
        checkpoint.save(tmp_path / "iter_1.pth", first.state_dict())
        second = Record(40, 3, ALONE)
        second.load_state_dict(checkpoint.load(tmp_path / "iter_1.pth"))
        filled(second, rows[cut:], first=cut)
        assert second.contrast_summary() == whole.contrast_summary()
        assert second.final_losses() == whole.final_losses()
        assert second.state_dict()["window"] == whole.state_dict()["window"]
        assert len(second.times) == 40
        assert second.data_s == whole.data_s == 0.125


def test_waits_begin_with_the_process_that_records_them() -> None:
    """A checkpoint of before has none; the median is of the iterations since, without their warm-up."""
    old = filled(Record(40, None, ALONE), [scalars(1.0)] * 10).state_dict()
    del old["waits"], old["window"]["data"]
    resumed = Record(40, None, ALONE)
    resumed.load_state_dict(old)
    assert resumed.data_s is None
    for age in range(30):
        resumed.note(10 + age, scalars(1.0))
        resumed.read([0.5], [9.0 if age < 10 else 0.25], age)
    assert resumed.data_s == 0.25
    assert resumed.take_window()["data_s"] == pytest.approx((10 * 9.0 + 20 * 0.25) / 40)


def test_history_is_rewound_to_where_a_run_goes_on(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    for iteration in (2, 4, 6):
        history.append({"iter": iteration, "lr": 0.1})
    with history.path.open("a") as stream:
        stream.write('{"iter": 8, "l')  # torn by a kill
    history.rewind(4)
    history.append({"iter": 6, "lr": 0.2})
    lines = [json.loads(line) for line in history.path.read_text().splitlines()]
    assert lines == [{"iter": 2, "lr": 0.1}, {"iter": 4, "lr": 0.1}, {"iter": 6, "lr": 0.2}]
    history.rewind(0)
    assert history.path.read_text() == ""


def test_warm_up_of_every_process_is_left_out_and_less_of_short_trainings() -> None:
    slow, typical = [9.0] * 10, [1.0, 2.0, 3.0]
    assert typical_time([*slow, *typical, *slow, *typical], [*range(13), *range(13)]) == 2.0
    for times, expected in (([9.0, 9.0, 9.0, 2.0], 2.0), ([9.0, 2.0], 2.0), ([9.0], 9.0)):
        assert typical_time(times, range(len(times))) == expected


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
