"""The decode heads of mmsegmentation that a contrast branch can be added to."""

import inspect

from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS

from pne.errors import UserError
from pne.heads.checks import suggest


def find_base(base: str | type | None) -> type[BaseDecodeHead]:
    """Find a decode head by its registered name, with or without scope, or take a class as it is.

    Raises
    ------
    UserError
        If there is no such head or it is no ``BaseDecodeHead``.
    """
    found = MODELS.get(base) if isinstance(base, str) else base
    if not inspect.isclass(found):
        got = "it is missing" if base is None else f"no head {base!r} is registered{suggest(base, classifying_heads())}"
        raise UserError(f"ContrastHead: base must name a decode head, {got}; allowed: {', '.join(classifying_heads())}")
    if not issubclass(found, BaseDecodeHead) or inspect.isabstract(found):
        raise UserError(
            f"ContrastHead: base {found.__name__} is no decode head that derives from BaseDecodeHead and classifies "
            f"pixels; allowed: {', '.join(classifying_heads())}"
        )
    return found


def classifying_heads() -> list[str]:
    """List the registered decode heads that classify a feature map with the inherited ``self.cls_seg``."""
    return sorted(name for name, head in MODELS.module_dict.items() if _classifies(head))


def _classifies(head: object) -> bool:
    if not inspect.isclass(head) or not issubclass(head, BaseDecodeHead) or inspect.isabstract(head):
        return False
    own = [c for c in head.__mro__ if issubclass(c, BaseDecodeHead) and c is not BaseDecodeHead]
    return head.cls_seg is BaseDecodeHead.cls_seg and any("self.cls_seg" in _source(c) for c in own)


def _source(head: type) -> str:
    try:
        return inspect.getsource(head)
    except (OSError, TypeError):  # defined interactively
        return ""
