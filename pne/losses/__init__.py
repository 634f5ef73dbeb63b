"""Pixel contrast losses for semantic segmentation; they need torch alone."""

from pne.losses.asymmetric import AsymmetricContrastLoss
from pne.losses.pairs import PairSample, sample_pairs
from pne.losses.pixel_contrast import PixelContrastLoss
from pne.losses.pne import PNELoss

__all__ = ["AsymmetricContrastLoss", "PNELoss", "PairSample", "PixelContrastLoss", "sample_pairs"]
