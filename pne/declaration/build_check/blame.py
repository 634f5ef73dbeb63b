"""Which key of a config is to blame for an error that came out of building it."""

import inspect
import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from mmengine.registry import Registry

from pne.declaration.reading import suggest
from pne.errors import UserError

KeyPath = tuple[str, ...]

_UNEXPECTED = re.compile(r"got an unexpected keyword argument '(\w+)'")
_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.+)")
_UNREGISTERED = re.compile(r"^(\S+) is not in the \S+ registry")


@dataclass(frozen=True)
class Problem:
    """What stands in the way of building a config.

    Attributes
    ----------
    key : str
        Dotted key of the config.
    message : str
        What is wrong with it and what is allowed.
    """

    key: str
    message: str


def blame(error: Exception, config: Mapping[str, Any], section: KeyPath) -> Problem:
    """Find the key that made building fail.

    Parameters
    ----------
    error : Exception
        As it came out, with its traceback.
    config : Mapping
        The config that was built from: the very dicts in it, no copies.
    section : tuple of str
        Keys of the part that was being built.
    """
    part, registry = _innermost(error, config, section)
    node = _at(config, part)
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, UserError):
        return Problem(".".join(part), text)
    if found := _UNREGISTERED.search(text):
        return _unregistered(found[1], config, part, registry)
    if found := _UNEXPECTED.search(text):
        path = min(_paths_to(found[1], node, part), key=len, default=part)
        owner = node.get("base") or node.get("type") if isinstance(node, Mapping) else None
        if path[:-1] == part:
            return Problem(".".join(path), f"{_name(owner)} takes no {found[1]}; {_allowed(owner, found[1], registry)}")
        return Problem(".".join(path), f"unknown to what {_name(owner)} builds with it ({text})")
    if found := _MISSING.search(text):
        return Problem(".".join(part), f"missing: {found[1]} ({text.partition(' missing')[0]})")
    reason = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return Problem(".".join(part), f"cannot be built: {type(error).__name__}: {reason}")


def _innermost(error: Exception, config: Mapping[str, Any], section: KeyPath) -> tuple[KeyPath, Registry | None]:
    """Find the deepest part of the config among those that registries were building when the error came."""
    part, registry = section, None
    nodes = {id(node): path for path, node in _nodes(config, ()) if path[: len(section)] == section}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        built = _built_in(frame)
        if built is None:
            continue
        registry = frame.f_locals["self"]
        path = nodes.get(id(built)) or next(
            (path for path in nodes.values() if _is_copied_from(built, _at(config, path))), None
        )
        if path is not None and path[: len(part)] == part:
            part = path
    return part, registry


def _built_in(frame: FrameType) -> Mapping[str, Any] | None:
    cfg = frame.f_locals.get("cfg") if frame.f_code is Registry.build.__code__ else None
    return cfg if isinstance(cfg, Mapping) else None


def _is_copied_from(built: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether a dict is a part of the config to which things were added (an optimiser's parameters)."""
    return "type" in node and all(key in built and built[key] == node[key] for key in node) and len(node) > 1


def _nodes(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield path, value
    for key, item in _items(value):
        yield from _nodes(item, (*path, key))


def _paths_to(name: str, value: Any, path: KeyPath) -> Iterator[KeyPath]:
    for key, item in _items(value):
        if key == name:
            yield (*path, key)
        yield from _paths_to(name, item, (*path, key))


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from ((str(index), item) for index, item in enumerate(value))


def _at(config: Any, path: KeyPath) -> Any:
    for key in path:
        config = config[key] if isinstance(config, Mapping) else config[int(key)]
    return config


def _unregistered(name: str, config: Mapping[str, Any], part: KeyPath, registry: Registry | None) -> Problem:
    node = _at(config, part)
    keys = [key for key, value in node.items() if value == name] if isinstance(node, Mapping) else []
    known = (
        [] if registry is None else [*registry.module_dict, *(registry.parent.module_dict if registry.parent else ())]
    )
    near = suggest(name, sorted(known)).partition("allowed:")[0].strip()
    return Problem(".".join([*part, *keys[:1]]), f"nothing is registered as {name!r}{'; ' if near else ''}{near}")


def _name(owner: Any) -> str:
    return owner if isinstance(owner, str) else getattr(owner, "__name__", "it")


def _allowed(owner: Any, name: str, registry: Registry | None) -> str:
    """Say which arguments a class takes, those that it passes on to its bases among them."""
    found = registry.get(owner) if isinstance(owner, str) and registry is not None else owner
    allowed: dict[str, None] = {}
    for base in inspect.getmro(found) if inspect.isclass(found) else ():
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
        allowed |= dict.fromkeys(p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return suggest(name, allowed)
