"""mmsegmentation's shipped configs, found and read without importing torch or mmsegmentation."""

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

from mmengine.config import Config

from pne.declaration.reading import suggest
from pne.errors import UserError

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
        raise UserError(
            f"the package {package} is not installed; install this project with its mmseg extra: pne[mmseg]"
        )
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
        names = [str(file.relative_to(stock_folder())) for file in path.parent.glob("*.py")]
        raise UserError(
            f"stock config {name!r}: mmsegmentation ships none of that name; {suggest(name, sorted(names))}"
        )
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
def _model_urls() -> dict[str, str]:
    path = package_folder("mmengine") / "hub" / "openmmlab.json"
    return json.loads(path.read_text(encoding="utf-8"))


def pretrained_url(name: str) -> str:
    """Spell out the URL of ``open-mmlab://<model>``, which mmengine would look up; other names stay as they are."""
    scheme = "open-mmlab://"
    if not name.startswith(scheme):
        return name
    model = name.removeprefix(scheme)
    urls = _model_urls()
    if model not in urls:
        raise UserError(f"pretrained weights {name!r}: mmengine knows no such model; {suggest(model, sorted(urls))}")
    return urls[model]
