"""The canonical form of a mmengine config: what makes two trainings the same, and nothing else.

Comments, formatting, the order of keys, paths of the data, devices and worker counts are not in it. Two configs with
one canonical form train the same network on the same batches.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pne.errors import UserError

SPEC_VERSION = 1  # raised when a default changes its meaning, so that old results are not taken for new ones

# Keys that say where and how to run, at the top of a config and at any depth.
TOP_LEVEL_ENVIRONMENT = frozenset(
    {
        "custom_imports",
        "default_hooks",
        "default_scope",
        "env_cfg",
        "launcher",
        "load_from",
        "log_level",
        "log_processor",
        "resume",
        "vis_backends",
        "visualizer",
        "work_dir",
    }
)
ENVIRONMENT = frozenset(
    {"cache_data", "cache_limit_mib", "data_root", "num_workers", "persistent_workers", "pin_memory"}
)


def canonical(config: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce a config to the JSON values that are hashed.

    Tuples become lists, whole floats become integers (``1.`` and ``1`` are one value), a checkpoint is known by its
    file name alone (a URL and a local copy are one file).

    Raises
    ------
    UserError
        If a value is no plain data (a function, a module, NaN), naming its key.
    """
    return {str(key): _plain(value, str(key)) for key, value in config.items() if str(key) not in TOP_LEVEL_ENVIRONMENT}


def _plain(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return {
            str(name): _file_name(item) if name == "checkpoint" else _plain(item, f"{key}.{name}")
            for name, item in value.items()
            if name not in ENVIRONMENT
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{key}.{index}") for index, item in enumerate(value)]
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, str | bool | int):
        return value
    raise UserError(f"config: {key}: expected numbers, texts, lists and dicts, got {value!r}")


def _file_name(checkpoint: Any) -> Any:
    return PurePosixPath(str(checkpoint)).name if checkpoint is not None else None


def digest(value: Any) -> str:
    """SHA-256, in hexadecimal, of a canonical value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
