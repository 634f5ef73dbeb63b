"""Data sets: importing this registers them, the sampler and the wrapper with mmsegmentation.

Commands: ``python -m pne.datasets.synthetic_street`` draws the embedded data, ``python -m pne.datasets.prepare``
converts downloads, ``python -m pne.datasets.doctor`` examines a data set before it is trained on.
"""

from pne.datasets.camvid import CamVidDataset
from pne.datasets.positioned import PositionedInfiniteSampler, PositionSeeded
from pne.datasets.street import StreetCityDataset, StreetSceneDataset, StreetStuffDataset

__all__ = [
    "CamVidDataset",
    "PositionSeeded",
    "PositionedInfiniteSampler",
    "StreetCityDataset",
    "StreetSceneDataset",
    "StreetStuffDataset",
]
