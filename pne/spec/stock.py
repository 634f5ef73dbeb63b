"""Configs, those that mmsegmentation ships among them, and files of weights: read without torch or mmsegmentation."""

import importlib.util
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mmengine.config import Config

from pne.errors import UserError
from pne.spec.reading import suggest

DELETE_KEY = "_delete_"


def package_folder(package: str) -> Path:
    """Folder of an installed package, which is not imported.

    Raises
    ------
    UserError
        If it is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(f"the package {package} is not installed; install pne with its extra mmseg: pne[mmseg]")
    return Path(spec.origin).parent


@cache
def stock_folder() -> Path:
    """Folder of the configs that mmsegmentation ships (of a checkout: its ``configs``)."""
    package = package_folder("mmseg")
    for folder in (package / ".mim" / "configs", package.parent / "configs"):
        if (folder / "_base_").is_dir():
            return folder
    raise UserError(f"{package}: no shipped configs (.mim/configs); install mmsegmentation from a wheel or a checkout")


def read_config(path: Path) -> dict[str, Any]:
    """Read a mmengine config file as plain dicts, lists and tuples; runs no custom imports.

    Raises
    ------
    UserError
        If the file is missing or fails to execute.
    """
    if not path.is_file():
        siblings = sorted(file.stem for file in path.parent.glob("*.py"))
        raise UserError(f"{path}: no such config; {suggest(path.stem, siblings)}")
    try:
        return Config.fromfile(str(path), import_custom_modules=False).to_dict()
    except Exception as error:  # the file is a Python program: anything may come out of it
        raise UserError(f"{path}: cannot be read as a config: {type(error).__name__}: {error}") from error


@cache
def _read_stock(name: str) -> dict[str, Any]:
    path = stock_folder() / name
    if not path.is_file():
        names = sorted(str(file.relative_to(stock_folder())) for file in path.parent.glob("*.py"))
        raise UserError(f"stock config {name!r}: mmsegmentation ships none of that name; {suggest(name, names)}")
    return read_config(path)


def read_stock(name: str) -> dict[str, Any]:
    """Read a shipped config, such as ``deeplabv3/deeplabv3_r50-d8_4xb2-40k_cityscapes-512x1024.py``."""
    return copied(_read_stock(name))


def read_inherited(path: Path, inherits: tuple[str, ...]) -> dict[str, Any]:
    """Read a config of ours; where it has a key ``stock``, it states the changes to that shipped config.

    Dicts are merged key by key, all else is replaced; a dict with ``_delete_=True`` replaces as a whole.

    Parameters
    ----------
    path : Path
        The config file.
    inherits : tuple of str
        Top-level keys that are taken over from the stock config; its others are left behind.
    """
    changes = read_config(path)
    name = changes.pop("stock", None)
    if name is None:
        return changes
    try:
        stock = read_stock(name)
    except UserError as error:
        raise UserError(f"{path}: stock: {error}") from None
    config = {key: stock[key] for key in inherits if key in stock}
    return config | {key: merged(config[key], value) if key in config else value for key, value in changes.items()}


def merged(base: Any, changes: Any) -> Any:
    """Merge changes into a copy of a plain config with mmengine's rules; neither argument is altered.

    A dict of changes with integer-like keys addresses the elements of a list.
    """
    if isinstance(changes, dict):
        replaces = changes.get(DELETE_KEY, False)
        changes = {key: value for key, value in changes.items() if key != DELETE_KEY}
        if isinstance(base, dict) and not replaces:
            result = {
                key: merged(value, changes[key]) if key in changes else copied(value) for key, value in base.items()
            }
            return result | {key: merged(None, value) for key, value in changes.items() if key not in base}
        if isinstance(base, list) and not replaces and changes and all(str(key).isdigit() for key in changes):
            by_index = {int(key): value for key, value in changes.items()}
            return [merged(item, by_index[i]) if i in by_index else copied(item) for i, item in enumerate(base)]
        return {key: merged(None, value) for key, value in changes.items()}
    return copied(changes)


def copied(value: Any) -> Any:
    """Copy nested dicts, lists and tuples; their leaves are immutable."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    return value


@cache
def pretrained_url(name: str) -> str:
    """Spell out the URL of ``open-mmlab://<model>``, which mmengine would look up; other names stay as they are."""
    scheme = "open-mmlab://"
    if not name.startswith(scheme):
        return name
    model = name.removeprefix(scheme)
    path = package_folder("mmengine") / "hub" / "openmmlab.json"
    urls = json.loads(path.read_text(encoding="utf-8"))
    if model not in urls:
        raise UserError(f"pretrained weights {name!r}: mmengine knows no such model; {suggest(model, sorted(urls))}")
    return urls[model]


def parts(config: Any) -> Iterator[dict[str, Any]]:
    """Yield every dict in a config, outer ones first."""
    if isinstance(config, Mapping):
        yield config
        config = [*config.values()]
    for part in config if isinstance(config, list | tuple) else ():
        yield from parts(part)


def without_pretrained(value: Any) -> Any:
    """Return a copy of a model's config, or of a part of it, that names no initial weights to fetch."""
    if isinstance(value, dict):
        dropped = (key for key, item in value.items() if key == "pretrained" or (key == "init_cfg" and _loads(item)))
        return {key: without_pretrained(item) for key, item in value.items()} | dict.fromkeys(dropped)
    if isinstance(value, list | tuple):
        return type(value)(without_pretrained(item) for item in value)
    return value


def _loads(init: Any) -> bool:
    entries = init if isinstance(init, list | tuple) else [init]
    return any(isinstance(entry, Mapping) and entry.get("type") == "Pretrained" for entry in entries)


def apply_changes(config: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a config with dotted keys set; digits address list elements.

    Raises
    ------
    UserError
        If a key leads through something that is not there; names the part that is missing.
    """
    result = copied(config)
    for key, value in changes.items():
        place: Any = result
        *parents, last = str(key).split(".")
        for depth, part in enumerate(parents):
            place = _child(place, part, ".".join(parents[: depth + 1]), key)
        if isinstance(place, list):
            _child(place, last, str(key), key)
            place[int(last)] = merged(place[int(last)], value)
        elif isinstance(place, dict):
            place[last] = merged(place.get(last), value)
        else:
            raise UserError(f"config.{key}: {'.'.join(parents)} has no keys, it is {place!r}")
    return result


def _child(place: Any, part: str, path: str, key: str) -> Any:
    if isinstance(place, dict) and part in place:
        return place[part]
    if isinstance(place, list) and part.isdigit() and int(part) < len(place):
        return place[int(part)]
    allowed = place if isinstance(place, dict) else range(len(place)) if isinstance(place, list) else ()
    raise UserError(f"config.{key}: no {path} in the config; allowed: {', '.join(map(str, allowed)) or 'nothing'}")


ZIP = b"PK\x03\x04"
PICKLE = b"\x80"  # followed by the protocol's number: how torch.save wrote before 1.6
HIGHEST_PROTOCOL = 5


def problem_of(path: Path) -> str | None:
    """Say why a file cannot be what ``torch.save`` wrote, judged from its first bytes; None if it may be.

    A page that a server sends instead of a file, and a download that never began, are seen here; a file cut short
    only when it is loaded.
    """
    if not path.is_file():
        return "no such file"
    try:
        with path.open("rb") as file:
            start = file.read(40)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not start:
        return "the file is empty"
    if start.startswith(ZIP) or (start[:1] == PICKLE and len(start) > 1 and start[1] <= HIGHEST_PROTOCOL):
        return None
    return f"no file of PyTorch weights: it begins with {start!r}"
