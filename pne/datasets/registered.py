"""Registers the data sets, the sampler and the wrapper with mmsegmentation, for the ``custom_imports`` of a config.

The data sets may keep their decoded images in memory.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mmcv.transforms import LoadAnnotations, LoadImageFromFile
from mmengine.dataset import Compose
from mmseg.datasets import BaseSegDataset
from mmseg.datasets.transforms import LoadImageFromNDArray
from mmseg.registry import DATASETS

import pne.datasets.positioned  # noqa: F401 (registers the sampler and the wrapper)
from pne.datasets.files import naming_files
from pne.datasets.layouts import LAYOUTS, Layout
from pne.errors import UserError

MIB = 2**20


class CachedSegDataset(BaseSegDataset):
    """A `BaseSegDataset` whose files are decoded once when ``cache_data`` is set.

    Parameters
    ----------
    cache_data : bool
        Decode all images and labels when the data set is initialised and keep them in memory: what the leading
        ``LoadImageFromFile`` and ``LoadAnnotations`` of the pipeline return. Everything behind them, and so all that
        is random, runs for each sample as ever; samples are identical with and without. Worker processes that are
        forked share the memory.
    cache_limit_mib : float
        Most mebibytes that the decoded data may take.
    **settings
        Those of `BaseSegDataset`.

    Raises
    ------
    UserError
        If the decoded data would exceed ``cache_limit_mib``.
    """

    def __init__(self, *, cache_data: bool = False, cache_limit_mib: float = 2048, **settings: Any) -> None:
        self.cache_data = cache_data
        self.cache_limit_mib = cache_limit_mib
        self._decoded: dict[str, dict] | None = None
        super().__init__(**settings)

    def full_init(self) -> None:
        """List the files and, with ``cache_data``, decode them."""
        if self._fully_initialized:
            return
        super().full_init()
        if self.cache_data:
            loading, rest = split_loading(self.pipeline.transforms)
            self._rest = Compose(rest)
            if loading:
                self._decoded = self._decode(Compose(loading))

    def _decode(self, loading: Callable[[dict], dict]) -> dict[str, dict]:
        decoded, size = {}, 0
        for index in range(len(self)):
            with naming_files(self, index):
                sample = loading(self.get_data_info(index))
            decoded[sample["img_path"]] = sample
            size += sum(value.nbytes for value in sample.values() if isinstance(value, np.ndarray))
            if size > self.cache_limit_mib * MIB:
                raise UserError(
                    f"{self.data_root}: the first {index + 1} of {len(self)} decoded images take {size / MIB:.0f} MiB, "
                    f"more than cache_limit_mib = {self.cache_limit_mib:g}; set cache_data to false or raise the limit"
                )
        return decoded

    def prepare_data(self, idx: int) -> Any:
        """Return the sample ``idx`` after the pipeline; its arrays are the caller's own."""
        if self._decoded is None:
            return super().prepare_data(idx)
        info = self.get_data_info(idx)
        sample = {key: copy.copy(value) for key, value in self._decoded[info["img_path"]].items()}
        return self._rest({**sample, "sample_idx": info["sample_idx"]})  # a subset numbers its samples anew


def split_loading(transforms: Sequence[Callable]) -> tuple[list[Callable], list[Callable]]:
    """Split a pipeline into the leading transforms that only read files, and the rest."""
    readers = [
        isinstance(t, LoadImageFromFile | LoadAnnotations) and not isinstance(t, LoadImageFromNDArray)
        for t in transforms
    ]
    first = [*readers, False].index(False)
    return list(transforms[:first]), list(transforms[first:])


def _make_class(layout: Layout) -> type[CachedSegDataset]:
    """Make the data set class of a layout, with its class names, colours and endings of file names."""

    def __init__(self: CachedSegDataset, *, img_suffix: str = layout.image_suffix, **settings: Any) -> None:
        CachedSegDataset.__init__(self, img_suffix=img_suffix, **settings)

    about = f"{layout.title}; settings are those of `CachedSegDataset`."
    members = {"__init__": __init__, "METAINFO": layout.metainfo, "__doc__": about, "__module__": __name__}
    return type(layout.dataset_type, (CachedSegDataset,), members)


def register_layouts() -> None:
    """Register a class for each layout whose classes mmsegmentation does not know."""
    for layout in LAYOUTS.values():
        if layout.classes and layout.dataset_type not in globals():
            globals()[layout.dataset_type] = DATASETS.register_module(module=_make_class(layout))


register_layouts()
