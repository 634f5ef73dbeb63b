"""Positive-negative equal contrastive loss for semantic segmentation.

Importing this package loads nothing heavy: ``pne.losses`` needs torch alone, ``pne.heads`` registers the loss with
mmsegmentation, ``pne.options`` and ``pne.spec`` need neither.
"""

__version__ = "0.1.0"
