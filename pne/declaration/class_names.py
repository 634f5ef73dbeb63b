"""Class names of a data set, known without torch: of ours from their layout, of mmsegmentation's from its source."""

import ast
from functools import cache

from pne.datasets.layouts import LAYOUTS
from pne.declaration.stock import package_folder
from pne.errors import UserError


@cache
def class_names(layout: str) -> tuple[str, ...]:
    """Return the classes of a layout of `pne.datasets`, in the order of the label values.

    They are the keys of ``class_iou`` in results, and what ``iou:<class>`` may name.

    Raises
    ------
    UserError
        If mmsegmentation has no such data set class, or its class names do not stand in its source as plain text.
    """
    known = LAYOUTS[layout]
    return known.classes or _stock_classes(known.dataset_type)


def _stock_classes(dataset_type: str) -> tuple[str, ...]:
    folder = package_folder("mmseg") / "datasets"
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if f"class {dataset_type}(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == dataset_type:
                found = _metainfo(node).get("classes")
                if found:
                    return tuple(found)
    raise UserError(
        f"{folder}: no class {dataset_type} with a METAINFO of plain class names; install mmsegmentation 1.x"
    )


def _metainfo(node: ast.ClassDef) -> dict:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == ["METAINFO"]:
            call = statement.value
            if isinstance(call, ast.Call):  # METAINFO = dict(classes=(...), palette=[...])
                return {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg == "classes"}
    return {}
