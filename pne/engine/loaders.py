"""Data sets and loaders of a run: built once per process, checked before use, workers that leave signals alone."""

import json
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.config import ConfigDict
from mmengine.dataset import pseudo_collate
from mmengine.dataset.utils import worker_init_fn as seed_worker
from mmengine.registry import DATA_SAMPLERS
from mmengine.structures import BaseDataElement
from mmseg.registry import DATASETS
from torch.utils.data import DataLoader, Dataset

from pne.datasets.transforms import quicken
from pne.engine.command import leave_signals_to_parent
from pne.engine.processes import Processes
from pne.errors import UserError

_KEPT = 8
_built: OrderedDict[str, Any] = OrderedDict()


def build_dataset(config: Mapping[str, Any]) -> Any:
    """Build a data set; the innermost one is shared with the runs that this process trained before.

    Runs that follow each other in one process so decode their images once. A data set holds no state of a run: the
    randomness of a sample comes with its index.

    Raises
    ------
    UserError
        If its folders are not there or hold no images.
    """
    if isinstance(config.get("dataset"), Mapping):
        return DATASETS.build({**config, "dataset": build_dataset(config["dataset"])})
    check_folder(config)
    plain = ConfigDict(config).to_dict()
    key = json.dumps(plain, sort_keys=True, default=repr)
    if key in _built:
        _built.move_to_end(key)
        return _built[key]
    dataset = DATASETS.build(plain)
    dataset.full_init()
    if hasattr(dataset, "pipeline"):  # several data sets in one have none of their own
        quicken(dataset.pipeline.transforms)
    if not len(dataset):
        raise UserError(f"{root_of(config)}: no images where {config.get('data_prefix')} points; check data_root")
    _built[key] = dataset
    while len(_built) > _KEPT:
        _built.popitem(last=False)
    return dataset


def inner(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the data set inside of wrappers."""
    while isinstance(config.get("dataset"), Mapping):
        config = config["dataset"]
    return config


def root_of(config: Mapping[str, Any]) -> Path:
    """Folder of the data set on disk."""
    return Path(inner(config).get("data_root") or ".")


def check_folder(config: Mapping[str, Any]) -> None:
    """Refuse a data set whose folders are not there.

    Raises
    ------
    UserError
        Naming the folder that was expected.
    """
    root = root_of(config)
    for folder in (root, *(root / str(prefix) for prefix in (inner(config).get("data_prefix") or {}).values())):
        if not folder.is_dir():
            raise UserError(
                f"{folder}: no such folder, but {inner(config)['type']} reads its data there; "
                "prepare the data set, or set data_root to where it lies"
            )


def train_loader(config: Mapping[str, Any], seed: int, processes: Processes) -> DataLoader:
    """Build the loader of training batches from ``train_dataloader`` of a prepared config."""
    dataset = build_dataset(config["dataset"])
    sampler = DATA_SAMPLERS.build(dict(config["sampler"]), default_args={"dataset": dataset, "seed": seed})
    workers, cuda = config["num_workers"], processes.device.type == "cuda"
    return DataLoader(
        dataset,
        batch_size=config["batch_size"],
        sampler=sampler,
        num_workers=workers,
        collate_fn=collate_to_pin if cuda else pseudo_collate,
        drop_last=True,
        pin_memory=cuda,
        persistent_workers=workers > 0,
        worker_init_fn=partial(_start_worker, workers=workers, rank=processes.rank, seed=seed),
        generator=torch.Generator().manual_seed(seed),  # the loader's own draws leave the global stream alone
    )


class Unpinned:
    """Data samples of a batch on their way to pinned memory, from which copies to the device wait for nothing.

    The loader pins bare tensors by itself, and what has this method.
    """

    def __init__(self, samples: list[BaseDataElement]) -> None:
        self.samples = samples

    def pin_memory(self) -> list[BaseDataElement]:
        """Pin the tensors of the samples, in place."""
        for part in (part for sample in self.samples for part in sample.values()):
            part.set_data({name: value.pin_memory() for name, value in part.items()})
        return self.samples


def collate_to_pin(batch: list[dict[str, Any]]) -> dict[str, Any]:
    """Put samples together as mmengine's ``pseudo_collate``, for a loader that pins memory."""
    collated = pseudo_collate(batch)
    return {**collated, "data_samples": Unpinned(collated["data_samples"])}


def end_workers(loader: DataLoader) -> None:
    """End the processes of a loader that keeps them between its uses.

    They ignore signals, and when the garbage collector ends a loader they may never hear of it: the interpreter would
    wait for them for ever.
    """
    if (iterator := loader._iterator) is not None:
        iterator._shutdown_workers()
        for worker in iterator._workers:
            worker.kill()  # one that hangs
            worker.join()


def image_loader(dataset: Dataset, workers: int, device: torch.device, batch_size: int = 1) -> DataLoader:
    """Build a loader that goes through a data set once, in order."""
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=workers,
        collate_fn=pseudo_collate,
        persistent_workers=workers > 0,  # until `end_workers`
        pin_memory=device.type == "cuda",
        worker_init_fn=partial(_start_worker, workers=workers, rank=0, seed=0),
        generator=torch.Generator().manual_seed(0),
    )


def _start_worker(worker: int, workers: int, rank: int, seed: int) -> None:
    leave_signals_to_parent()
    seed_worker(worker, num_workers=workers, rank=rank, seed=seed, disable_subprocess_warning=True)
