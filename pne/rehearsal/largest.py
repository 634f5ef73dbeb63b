"""The test images that need most memory, which a rehearsal scores: sizes differ within ADE20K and COCO-Stuff."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mmseg.registry import DATASETS

from pne.datasets.cores import usable_threads
from pne.datasets.pictures import image_size
from pne.engine.data import check_folder, inner


def largest_images(config: Mapping[str, Any], number: int) -> list[int]:
    """Return the positions of the images with most pixels, in ascending order; of equal ones the earlier.

    Headers alone are read.

    Parameters
    ----------
    config : mapping
        Config of a data set.
    number : int
        How many; all of them if there are fewer.

    Raises
    ------
    UserError
        If the folders are not there or a header cannot be read.
    """
    check_folder(config)
    listing = {key: value for key, value in inner(config).items() if not key.startswith("cache_")}
    dataset = DATASETS.build({**listing, "pipeline": []})
    dataset.full_init()
    paths = [Path(dataset.get_data_info(index)["img_path"]) for index in range(len(dataset))]
    with ThreadPoolExecutor(usable_threads()) as pool:
        areas = [height * width for height, width in pool.map(image_size, paths)]
    return sorted(sorted(range(len(areas)), key=lambda index: -areas[index])[:number])


def restricted(config: Mapping[str, Any], positions: list[int]) -> dict[str, Any]:
    """Return the config of a data set that consists of the images at these positions alone."""
    if isinstance(config.get("dataset"), Mapping):
        return {**config, "dataset": restricted(config["dataset"], positions)}
    earlier = config.get("indices")  # an integer stands for the first so many
    if earlier is not None and not isinstance(earlier, int):
        positions = [earlier[position] for position in positions]
    return {**config, "indices": positions}
