"""Initial weights that a config names are at hand before a training begins."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError

from mmengine.runner.checkpoint import CheckpointLoader

from pne.errors import UserError


def check_initial_weights(model: Mapping[str, Any]) -> None:
    """Fetch what is named by URL into the cache, and look for what is named by path.

    Parameters
    ----------
    model : mapping
        Config of the model.

    Raises
    ------
    UserError
        Naming the file and how to provide it.
    """
    for source in _sources(model):
        remedy = "put the file into a folder and name it as weights_dir"
        if "://" not in source:
            if not Path(source).is_file():
                raise UserError(f"{source}: no such file of initial weights; {remedy}, or correct weights_dir")
            continue
        try:
            CheckpointLoader.load_checkpoint(source, map_location="cpu", logger="silent")
        except (URLError, OSError, RuntimeError) as error:
            raise UserError(f"{source}: cannot be fetched ({error}); where there is no network, {remedy}") from error


def _sources(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if value.get("type") == "Pretrained" and value.get("checkpoint"):
            yield str(value["checkpoint"])
        if value.get("pretrained"):
            yield str(value["pretrained"])
        for item in value.values():
            yield from _sources(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _sources(item)
