"""Contrastive losses for the decode heads of mmsegmentation, and a light head; importing it registers heads and losses.

In a config: ``custom_imports = dict(imports=["pne.heads"])``, and a ``ContrastHead`` in place of the decode head.
"""

from pne.heads.branch import ContrastBranch
from pne.heads.head import ContrastHead
from pne.heads.skip_aspp import SkipASPPHead

__all__ = ["ContrastBranch", "ContrastHead", "SkipASPPHead"]
