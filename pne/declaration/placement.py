"""The environment of a run's config: where its data lie, with how many workers; nothing of it makes another run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pne.declaration.stock import copied

LOADERS = ("train_dataloader", "val_dataloader", "test_dataloader")


def place(
    config: Mapping[str, Any], *, data: Path, workers: int, cache_data: bool, weights_dir: Path | None
) -> dict[str, Any]:
    """Return a copy of a run's config with its environment: paths, workers, imports. Nothing of it is hashed.

    Parameters
    ----------
    config : Mapping
        `RunConfig.plain`.
    data : Path
        Folder of the data set.
    workers : int
        Loader processes per training process.
    cache_data : bool
        Keep decoded images in memory, where the data set's config has a key ``cache_data``.
    weights_dir : Path or None
        Folder with the files of initial weights; None keeps their URLs.
    """
    result = copied(dict(config))
    for key in LOADERS:
        loader = result[key]
        loader |= {"num_workers": workers, "persistent_workers": workers > 0}
        dataset = loader["dataset"].get("dataset", loader["dataset"])
        dataset["data_root"] = str(data)
        if "cache_data" in dataset:
            dataset["cache_data"] = cache_data
    source = result["model"]["backbone"].get("init_cfg")
    if weights_dir is not None and isinstance(source, dict) and "checkpoint" in source:
        source["checkpoint"] = str(weights_dir / Path(source["checkpoint"]).name)
    return result | {
        "default_scope": "mmseg",
        "custom_imports": {"imports": ["pne.heads", "pne.datasets.registered"], "allow_failed_imports": False},
        "env_cfg": {"cudnn_benchmark": True, "mp_cfg": {"mp_start_method": "fork", "opencv_num_threads": 0}},
        "log_processor": {"by_epoch": False},
        "log_level": "INFO",
        "load_from": None,
        "resume": False,
    }
