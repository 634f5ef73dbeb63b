"""The variants of SyntheticStreet as mmsegmentation data sets."""

from typing import Any, ClassVar

from mmseg.registry import DATASETS

from pne.datasets.cached import CachedSegDataset
from pne.datasets.layouts import LAYOUTS


class StreetDataset(CachedSegDataset):
    """What the variants share: PNG images and labels. Settings are those of `CachedSegDataset`."""

    def __init__(self, *, img_suffix: str = ".png", seg_map_suffix: str = ".png", **settings: Any) -> None:
        super().__init__(img_suffix=img_suffix, seg_map_suffix=seg_map_suffix, **settings)


@DATASETS.register_module()
class StreetCityDataset(StreetDataset):
    """SyntheticStreet with CamVid's 11 classes."""

    METAINFO: ClassVar[dict] = LAYOUTS["street_city"].metainfo


@DATASETS.register_module()
class StreetStuffDataset(StreetDataset):
    """SyntheticStreet with 16 classes, several of them close relatives (sky and cloud, tree and bush, car and bus)."""

    METAINFO: ClassVar[dict] = LAYOUTS["street_stuff"].metainfo


@DATASETS.register_module()
class StreetSceneDataset(StreetDataset):
    """SyntheticStreet with 14 classes: suburban streets with houses, verges and narrow roads."""

    METAINFO: ClassVar[dict] = LAYOUTS["street_scene"].metainfo
