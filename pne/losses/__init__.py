"""Pixel contrast losses for semantic segmentation; they need torch alone."""

from pne.losses.asymmetric import AsymmetricContrastLoss
from pne.losses.pne import PNELoss

__all__ = ["AsymmetricContrastLoss", "PNELoss"]
