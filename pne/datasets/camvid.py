"""CamVid with the 11 classes of its common split, in mmsegmentation's custom layout."""

from typing import Any, ClassVar

from mmseg.registry import DATASETS

from pne.datasets.cached import CachedSegDataset
from pne.datasets.layouts import LAYOUTS


@DATASETS.register_module()
class CamVidDataset(CachedSegDataset):
    """CamVid (Brostow et al., 2008), 11 classes (Badrinarayanan et al., 2017), 255 = void.

    Expects ``img_dir/<split>/*.jpg`` and ``ann_dir/<split>/*.png`` below ``data_root``. Settings are those of
    `CachedSegDataset`.
    """

    METAINFO: ClassVar[dict] = LAYOUTS["camvid"].metainfo

    def __init__(self, *, img_suffix: str = ".jpg", seg_map_suffix: str = ".png", **settings: Any) -> None:
        super().__init__(img_suffix=img_suffix, seg_map_suffix=seg_map_suffix, **settings)
