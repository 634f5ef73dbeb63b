"""docs/spine.md names files and definitions that exist, and not more than an evening's reading."""

import ast
import re
from pathlib import Path


def definitions(path: Path) -> dict[str, int]:
    """Lines of every function and class of a file; methods as ``Class.method``."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node.end_lineno - node.lineno + 1
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef):
                    found[f"{node.name}.{inner.name}"] = inner.end_lineno - inner.lineno + 1
    return found


def test_the_spine_exists_and_is_short(repository: Path):
    page = (repository / "docs/spine.md").read_text(encoding="utf-8")
    steps = re.findall(r"^(\d+)\. `([^`]+)`:(.*?)(?=^\d+\. |^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1))
    lines = 0
    for _, file, text in steps:
        path = repository / file
        if path.suffix != ".py":
            lines += len(path.read_text(encoding="utf-8").splitlines())
            continue
        named = re.match(r"(?:\s*`[\w.]+`,?)+", text)[0]
        known = definitions(path)
        for name in re.findall(r"`([\w.]+)`", named):
            assert name in known, f"{file} defines no {name}"
            lines += known[name]
    assert 1200 < lines < 1700, lines
