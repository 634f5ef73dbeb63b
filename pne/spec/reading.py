"""Reading YAML and JSON files into pydantic models, with every mistake named by file and key.

`read_model` reads a file, `check_model` what is already read; both raise one `UserError` with a line per mistake.
"""

import difflib
import json
import re
from collections.abc import Hashable, Iterable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from pne.errors import UserError

MOST_REPORTED = 10

Model = TypeVar("Model", bound=BaseModel)


def suggest(word: str, allowed: Iterable[str]) -> str:
    """Say what may stand in the place of an unknown word: the nearest one, then all."""
    allowed = [str(name) for name in allowed]
    near = difflib.get_close_matches(str(word), allowed, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{hint}allowed: {', '.join(allowed) or 'none'}"


def shown(value: Any) -> str:
    """Return the ``repr`` of a value, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def raise_problems(problems: list[str]) -> None:
    """Raise one `UserError` with the first ten problems, each on its line; do nothing when there is none."""
    if not problems:
        return
    lines = list(dict.fromkeys(problems))
    more = len(lines) - MOST_REPORTED
    if more > 0:
        lines = [*lines[:MOST_REPORTED], f"... and {more} more"]
    raise UserError("\n".join(lines))


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):
    """Safe loader that refuses a key given twice, of which YAML would let one win, and reads 1e-3 as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is given twice; keep one", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(path: Path, text: str | None = None) -> Any:
    """Parse one YAML file (or ``text`` in its place).

    Raises
    ------
    UserError
        If the file is missing, no YAML, or gives a key twice; names file, line and column.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8") if text is None else text, Loader=_Loader)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error})") from error
    except (yaml.YAMLError, ValueError, KeyError, AttributeError) as error:  # a date 2026-13-31, !!int abc
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise UserError(f"{path}{place}: no valid YAML: {problem}") from error


def read_model(path: Path, model: type[Model], *, missing: str = "no such file", remedy: str = "") -> Model:
    """Read a YAML file, or a JSON file by its suffix ``.json``, and check it against a model.

    Parameters
    ----------
    path : Path
    model : type of BaseModel
        What it must hold.
    missing : str
        What the message says where there is no file.
    remedy : str
        What the message ends with where the file cannot be used, such as how it is made anew.

    Raises
    ------
    UserError
        With one line per problem: file, key, what was expected, what came, the remedy.
    """
    if not path.is_file():
        raise UserError(f"{path}: {missing}")
    if path.suffix != ".json":
        return check_model(model, read_yaml(path), f"{path}: ", remedy)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: no valid JSON ({error}){_after(remedy)}") from error
    return check_model(model, data, f"{path}: ", remedy)


def check_model(model: type[Model], data: Any, prefix: str, remedy: str = "") -> Model:
    """Check plain data against a model.

    Parameters
    ----------
    model : type of BaseModel
    data : Any
        A mapping, or what came in its place.
    prefix : str
        Goes before each key in messages, such as ``file.yaml: `` or ``file.yaml: rows.``.
    remedy : str
        As in `read_model`.

    Raises
    ------
    UserError
        With one line per problem.
    """
    if not isinstance(data, dict):
        allowed = ", ".join(model.model_fields)
        prefix = f"{prefix[:-1]}: " if prefix.endswith(".") else prefix
        raise UserError(f"{prefix}expected keys and values, got {shown(data)}; allowed: {allowed}{_after(remedy)}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise_problems([f"{prefix}{problem}{_after(remedy)}" for problem in describe(error, model)])
        raise


def read_declaration(path: Path, model: type[Model], name_key: str) -> Model:
    """Read a declaration whose ``name_key`` repeats the file's stem, so that a copy that kept its old name is found.

    Raises
    ------
    UserError
        As `read_model`.
    """
    declaration = read_model(path, model)
    name = getattr(declaration, name_key)
    if name != path.stem:
        raise UserError(f"{path}: {name_key}: expected {path.stem!r}, the file's name, got {name!r}")
    return declaration


def describe(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Put what pydantic found into words, one line per problem, each starting with the key."""
    lines = []
    for problem in error.errors():
        location = problem["loc"]
        key = ".".join(str(part) for part in location if part != "[key]")
        if problem["type"] == "extra_forbidden":
            owner = _model_at(model, location[:-1])
            lines.append(f"{key}: unknown key; {suggest(str(location[-1]), owner.model_fields if owner else ())}")
        elif problem["type"] == "missing":
            lines.append(f"{key}: missing; this key is required")
        elif problem["type"] == "value_error":
            prefix = f"{key}: " if key else ""
            lines += [prefix + line for line in str(problem["ctx"]["error"]).splitlines()]
        else:
            lines.append(f"{key}: {problem['msg']}; got {shown(problem['input'])}")
    return lines


def _after(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def _model_at(annotation: Any, location: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Find the model that a pydantic location points at."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        found = (_model_at(argument, location) for argument in get_args(annotation))
        return next((model for model in found if model), None)
    if get_origin(annotation) in (dict, list) and location:
        return _model_at(get_args(annotation)[-1], location[1:])
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return None
    if not location:
        return annotation
    field = annotation.model_fields.get(str(location[0]))
    return _model_at(field.annotation, location[1:]) if field else None
