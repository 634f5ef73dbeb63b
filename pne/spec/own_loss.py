"""A loss of one's own, named ``module:Class``: its options are read from its source, and nothing of it is imported."""

import ast
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Union

from pne.options import LOSSES, LossOptions, OptionError, option, unknown

GIVEN_BY_THE_BRANCH = ("num_classes", "channels")  # where the constructor takes them
TYPES = {"float": float, "int": int, "bool": bool, "str": str}


@dataclass(frozen=True)
class Keyword:
    """A keyword of a constructor: its type and bounds, and whether it has a default."""

    kind: Any = Any
    minimum: float | None = None
    maximum: float | None = None
    has_default: bool = True


def check_own_options(loss: str, options: Mapping[str, Any], *, complete: bool) -> None:
    """Check options against the keywords of the class: their names, and values where an annotation is simple.

    Parameters
    ----------
    loss : str
        ``module:Class``.
    options : Mapping
    complete : bool
        Whether keywords without a default must be among them.

    Raises
    ------
    OptionError
        If the class or an option is unknown, a value does not fit, or an option is missing.
    """
    known = read_keywords(loss)
    for name in options:
        if name not in known:
            raise unknown(name, f"option of {loss}", known, option=str(name))
    for name, keyword in known.items():
        if complete and not keyword.has_default and name not in {*options, *GIVEN_BY_THE_BRANCH}:
            raise OptionError(f"{loss}: option {name} is missing", name, "missing; it has no default")
    given = [(n, known[n].kind, option(None, "", minimum=known[n].minimum, maximum=known[n].maximum)) for n in options]
    make_dataclass("OwnOptions", given, bases=(LossOptions,), namespace={"loss": loss}, frozen=True)(**options)


def read_keywords(loss: str) -> dict[str, Keyword]:
    """Return the keywords of the constructor of ``module:Class``, by name.

    A class without a constructor, or whose constructor passes ``**options`` on, has those of its bases, too: classes of
    `pne.losses` and of the same file.

    Raises
    ------
    OptionError
        If module or class are not found, or a base is neither.
    """
    module, _, name = loss.partition(":")
    path = source_of(module)
    if path is None:
        raise OptionError(f"{loss}: no module {module}; put {module}.py beside the Snakefile or install it")
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (SyntaxError, ValueError) as error:
        raise OptionError(f"{loss}: {path}: no Python module ({error})") from error
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        raise unknown(name, f"class in {path}", classes)
    return _keywords(name, classes, loss)


def source_of(module: str) -> Path | None:
    """Find the file of a module without importing it; None where there is none."""
    first, *others = module.split(".")
    try:
        found = importlib.util.find_spec(first)
    except ValueError:  # of the program that runs
        return None
    for part in others:
        folders = found.submodule_search_locations if found else None
        found = PathFinder.find_spec(part, folders) if folders else None
    return Path(found.origin) if found and found.origin and found.origin.endswith(".py") else None


def _keywords(name: str, classes: Mapping[str, ast.ClassDef], loss: str) -> dict[str, Keyword]:
    node = classes[name]
    constructor = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    found: dict[str, Keyword] = {}
    if constructor is None or constructor.args.kwarg is not None:
        for base in (ast.unparse(base).rpartition(".")[2] for base in node.bases):
            if base in classes:
                found |= _keywords(base, classes, loss)
            elif base in LOSSES:
                found |= {
                    f.name: Keyword(f.type, f.metadata["minimum"], f.metadata["maximum"]) for f in fields(LOSSES[base])
                }
            elif base != "Module":
                raise OptionError(f"{loss}: give {name} an __init__ that names its options; {base} is not read")
    if constructor is not None:
        arguments = constructor.args
        plain = [*arguments.posonlyargs, *arguments.args][1:]
        defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults + arguments.kw_defaults
        for one, default in zip([*plain, *arguments.kwonlyargs], defaults, strict=True):
            found[one.arg] = Keyword(_kind(one.annotation), has_default=default is not None)
    return found


def _kind(annotation: ast.expr | None) -> Any:
    """The type that an annotation spells, ``Any`` where it is none of those that YAML has."""
    match annotation:
        case ast.Constant(value=None):
            return NoneType
        case ast.Constant(value=str(text)):
            return _kind(ast.parse(text, mode="eval").body)
        case ast.Name(id=name):
            return TYPES.get(name, Any)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[_kind(left), _kind(right)]  # noqa: UP007 -- of values
        case ast.Subscript(value=generic, slice=inner):
            name = ast.unparse(generic).rpartition(".")[2]
            if name == "Literal":
                return Literal[ast.literal_eval(inner)]
            return Union[_kind(inner), None] if name == "Optional" else Any  # noqa: UP007
    return Any
