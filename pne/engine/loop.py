"""The training loop: an iteration is one optimiser step, cut into micro-batches where memory asks for it."""

from typing import Any

import torch
from mmengine.registry import LOOPS
from mmengine.runner import IterBasedTrainLoop
from torch import Tensor


@LOOPS.register_module()
class ResumableTrainLoop(IterBasedTrainLoop):
    """Iterate from wherever the runner was resumed, and give hooks a moment between two iterations.

    Besides mmengine's stages, hooks may have ``before_fetch(runner)``, called before the data of an iteration are
    waited for, and ``at_boundary(runner)``, called when an iteration is complete in every respect: ``runner.iter``
    counts it, and schedules have stepped. There the state can be saved.

    Parameters
    ----------
    parts : int
        Number of micro-batches of one iteration.
    **settings
        Those of mmengine's loop.
    """

    def __init__(self, *args: Any, parts: int = 1, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.parts = parts

    def run(self) -> None:
        """Train to the last iteration."""
        runner = self.runner
        runner.optim_wrapper.initialize_count_status(
            runner.model, self._iter * self.parts, self._max_iters * self.parts
        )
        runner.call_hook("before_train")
        runner.call_hook("before_train_epoch")
        self.dataloader_iterator.skip_iter(self._iter)
        while self._iter < self._max_iters:
            runner.model.train()
            runner.call_hook("before_fetch")
            self.run_iter(next(self.dataloader_iterator))
            runner.call_hook("at_boundary")
        runner.call_hook("after_train_epoch")
        runner.call_hook("after_train")

    def run_iter(self, data_batch: dict[str, list[Any]]) -> None:
        """Make one optimiser step from one batch."""
        runner = self.runner
        runner.call_hook("before_train_iter", batch_idx=self._iter, data_batch=data_batch)
        outputs = [runner.model.train_step(part, runner.optim_wrapper) for part in split(data_batch, self.parts)]
        runner.call_hook(
            "after_train_iter", batch_idx=self._iter, data_batch=data_batch, outputs=mean_of_scalars(outputs)
        )
        self._iter += 1


def split(batch: dict[str, list[Any]], parts: int) -> list[dict[str, list[Any]]]:
    """Cut a batch (lists of equal length by key) into equal parts."""
    if parts == 1:
        return [batch]
    size = len(next(iter(batch.values()))) // parts
    return [{key: values[i * size : (i + 1) * size] for key, values in batch.items()} for i in range(parts)]


def mean_of_scalars(outputs: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average the scalars of micro-batches, detached, on their device."""
    if len(outputs) == 1:
        return {name: value.detach() for name, value in outputs[0].items()}
    return {name: torch.stack([output[name].detach() for output in outputs]).mean(0) for name in outputs[0]}
