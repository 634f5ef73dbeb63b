"""Contrastive losses for the decode heads of mmsegmentation; importing it registers heads and losses.

In a config: ``custom_imports = dict(imports=["pne.heads"])``, and a ``ContrastHead`` in place of the decode head.
"""

from pne.heads.branch import ContrastBranch
from pne.heads.head import ContrastHead

__all__ = ["ContrastBranch", "ContrastHead"]
