"""Loader processes end with the training, however it ends: they ignore signals and would keep the command waiting."""

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from mmengine.runner import Runner
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from tiny_runs import train_run, trained, work_of, write_run
from torch.utils.data._utils.pin_memory import pin_memory

from pne.datasets.files import naming_files
from pne.datasets.positioned import Draw, PositionSeeded
from pne.engine import evaluation
from pne.engine.command import StopRequest
from pne.engine.hooks import CheckpointHook
from pne.engine.loaders import collate_to_pin
from pne.train import main

DIVERGES = {"optim_wrapper.optimizer.lr": 1e30, "param_scheduler": []}


@pytest.mark.parametrize(("change", "stops", "status"), [({}, False, 0), (DIVERGES, False, 1), ({}, True, 75)])
def test_none_is_left_before_the_evaluation_nor_in_the_end(
    change: dict, stops: bool, status: int, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, evaluate = set(multiprocessing.active_children()), evaluation.evaluate

    def evaluate_and_look(*arguments: object, **options: object) -> object:
        assert set(multiprocessing.active_children()) == before
        if stops:
            os.kill(os.getpid(), signal.SIGTERM)  # the check between two images raises
        return evaluate(*arguments, **options)

    monkeypatch.setattr(evaluation, "evaluate", evaluate_and_look)
    assert main([str(write_run(tmp_path, data, change=change, workers=2))]) == status
    assert set(multiprocessing.active_children()) == before


def test_images_and_labels_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor.clone())
        return pinned[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    labels = torch.arange(6).reshape(1, 2, 3)
    sample = SegDataSample(metainfo={"ori_shape": (2, 3)}, gt_sem_seg=PixelData(data=labels))
    batch = pin_memory(collate_to_pin([{"inputs": torch.ones(3, 2, 3), "data_samples": sample}]))
    (image,), (found,) = batch["inputs"], batch["data_samples"]
    assert any(image is tensor for tensor in pinned)
    assert any(found.gt_sem_seg.data is tensor for tensor in pinned)
    assert torch.equal(found.gt_sem_seg.data, labels)
    assert found.ori_shape == (2, 3)


def test_a_worker_that_cannot_pass_a_batch_on_ends_the_run(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """As in a container with a small /dev/shm: the parent would wait for ever."""

    def full(storage: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch.UntypedStorage, "_share_fd_cpu_", full)
    assert main([str(write_run(tmp_path, data, workers=2))]) == 1
    error = capfd.readouterr().err
    assert "loader process: [Errno 28] No space left on device" in error
    assert "workers=0 in --config, or a larger /dev/shm" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("early", [False, True], ids=["while it waits", "before it waits"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_signal_ends_a_wait_for_data_that_never_come(
    workers: int, early: bool, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """As from a file server that is gone; what was trained before is saved, and goes on as if nothing had been."""
    load, wait = PositionSeeded._prepared, CheckpointHook.before_fetch
    settings = {"workers": workers, "iterations": 6, "batch_size": 2}

    def hang(dataset: PositionSeeded, draw: Draw) -> object:
        with naming_files(dataset.dataset, draw.index):
            while draw.position >= 4:
                torch.rand(1)
                time.sleep(0.1)
        return load(dataset, draw)

    def be_told(hook: CheckpointHook, runner: Runner) -> None:
        now = runner.iter == 2
        if now and early:
            os.kill(os.getpid(), signal.SIGTERM)
        wait(hook, runner)
        if now and not early:
            os.kill(os.getpid(), signal.SIGTERM)

    before = set(multiprocessing.active_children())
    spec = write_run(tmp_path, data, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(PositionSeeded, "_prepared", hang)
        patch.setattr(CheckpointHook, "before_fetch", be_told)
        patch.setattr(StopRequest, "PATIENCE", 0.5)
        assert main([str(spec)]) == 75
    assert set(multiprocessing.active_children()) == before
    assert "interrupted by SIGTERM" in capfd.readouterr().err
    assert [path.name for path in work_of(spec).glob("iter_*.pth")] == ["iter_2.pth"]
    assert main([str(spec)]) == 0
    assert trained(spec).resumes == 1
    assert trained(spec).weights_sha256 == trained(train_run(tmp_path, data, "whole", **settings)).weights_sha256


def test_a_signal_ends_an_evaluation_whose_first_image_never_comes(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_run(tmp_path, data)

    def endless() -> Iterator[None]:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            time.sleep(0.1)
        yield

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "predict", lambda *arguments, **options: endless())
        patch.setattr(StopRequest, "PATIENCE", 0.5)
        assert main([str(spec)]) == 75
    assert main([str(spec)]) == 0
