"""Hooks of a training that a config of the tests imports by name: one writes down what it sees, one kills it."""

import hashlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

from pne.engine import checkpoint


def _hash(values: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(values.detach().cpu().numpy()).tobytes()).hexdigest()[:16]


@HOOKS.register_module(force=True)
class SpyHook(Hook):
    """Once: the weights. Per iteration: hashes of images, labels and of the dropped channels."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.dropped: str | None = None

    def _write(self, runner: Any, line: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{runner.rank}.jsonl").open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def before_train(self, runner: Any) -> None:
        model = runner.plain_model
        shared = {name: _hash(value) for name, value in model.state_dict().items() if ".contrast." not in name}
        self._write(runner, {"weights": shared})

        def note(module: Any, inputs: Any, output: Any) -> None:
            self.dropped = _hash((output == 0).all(dim=3).all(dim=2))

        if model.decode_head.dropout is not None:
            model.decode_head.dropout.register_forward_hook(note)

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        samples = data_batch["data_samples"]
        self._write(
            runner,
            {
                "iteration": batch_idx,
                "images": [_hash(image) for image in data_batch["inputs"]],
                "labels": [_hash(sample.gt_sem_seg.data) for sample in samples],
                "dropped": self.dropped,
            },
        )


@HOOKS.register_module(force=True)
class KillHook(Hook):
    """Dies at a checkpoint as the environment asks by ``KILL=<rank> <moment> <iteration>``.

    Moments: ``last``, when all files but this process's own are written; ``amid``, while it is written; ``after``.
    """

    def before_train(self, runner: Any) -> None:
        rank, moment, iteration = os.environ.get("KILL", "-1 never -1").split()
        if runner.rank != int(rank):
            return
        save = checkpoint.save

        def save_and_die(path: Path, content: Any) -> None:
            if runner.iter != int(iteration):
                return save(path, content)
            if moment == "last":
                while not checkpoint.path_of(path.parent, runner.iter, 1 - runner.rank).exists():
                    time.sleep(0.01)
            elif moment == "amid":
                path.with_name(f".{path.stem}.0123abcd.pth").write_bytes(b"half of")
            else:
                save(path, content)
            os.kill(os.getpid(), signal.SIGKILL)

        checkpoint.save = save_and_die


def notes(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{rank}.jsonl").read_text().splitlines()]
