"""Everything a config may name is registered and found: mmseg's own classes, ours, and the config's own imports."""

from collections.abc import Mapping
from typing import Any

import mmseg.datasets
import mmseg.engine
import mmseg.models  # noqa: F401 -- importing registers
from mmengine.registry import DefaultScope
from mmengine.utils import import_modules_from_strings

import pne.datasets.registered
import pne.heads  # noqa: F401 -- importing registers

SCOPE = "mmseg"


def register(config: Mapping[str, Any]) -> None:
    """Make mmseg the scope in which names of a config are looked up, and do the imports that the config asks for."""
    current = DefaultScope.get_current_instance()
    if current is None or current.scope_name != SCOPE:
        DefaultScope.get_instance(f"pne_{SCOPE}", scope_name=SCOPE)
    wanted = config.get("custom_imports")
    if wanted:
        import_modules_from_strings(**wanted)
