"""SyntheticStreet: procedurally drawn street scenes, 64 x 96 pixels, that stand for real data sets in small runs.

The scenes have the classes of CamVid and what makes them hard: perspective, thin poles, occlusion, changing light,
colours and textures shared between classes, rare classes, and pixels to ignore. Everything follows from a seed.

>>> from pne.datasets.synthetic_street import VARIANTS, draw_scene
>>> image, label = draw_scene(VARIANTS["street_city"], "train", 0)
>>> image.shape, label.shape, VARIANTS["street_city"].classes[:3]
((64, 96, 3), (64, 96), ('sky', 'building', 'pole'))
"""

from pne.datasets.synthetic_street.scene import draw_scene
from pne.datasets.synthetic_street.store import verify, write
from pne.datasets.synthetic_street.variants import IGNORE_INDEX, SPLITS, VARIANTS, Part, Variant, variant

__all__ = ["IGNORE_INDEX", "SPLITS", "VARIANTS", "Part", "Variant", "draw_scene", "variant", "verify", "write"]
