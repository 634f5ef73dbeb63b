"""Whether a data set on disk is the whole official one, by its number of images."""

from pathlib import Path

from pne.datasets.files import find_files
from pne.datasets.layouts import data_folder, layout


def is_complete(dataset: str, data_root: Path | str) -> bool | None:
    """Return whether every split with labels has the official number of images; file names alone are read.

    Splits without labels serve submissions alone and do not count.

    Parameters
    ----------
    dataset : str
        Key of the data set or name of its mmsegmentation class.
    data_root : Path
        Its folder.

    Returns
    -------
    bool or None
        None where the data set has no official numbers.

    Raises
    ------
    UserError
        If the data set is not known or the folder does not exist.
    """
    known, root = layout(dataset), data_folder(data_root)
    official = [split for split in known.splits.values() if split.labels is not None and split.count]
    if not official:
        return None
    return all(len(find_files(known, root, split).images) == split.count for split in official)
