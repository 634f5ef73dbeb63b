"""A step of the test pipeline that takes the place of reading labels where there are none."""

from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform
from mmseg.registry import TRANSFORMS


@TRANSFORMS.register_module()
class LoadBlankLabels(BaseTransform):
    """Give an image labels of its own size that say nothing, so that predictions know the size to have."""

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        """Add ``gt_seg_map``, (H, W), uint8, zeros."""
        results["gt_seg_map"] = np.zeros(results["ori_shape"], np.uint8)
        results.setdefault("seg_fields", []).append("gt_seg_map")
        return results
