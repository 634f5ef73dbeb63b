"""Registers the data sets, the sampler and the wrapper with mmsegmentation, for the ``custom_imports`` of a config."""

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
