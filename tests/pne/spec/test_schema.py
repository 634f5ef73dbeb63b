"""The form of declarations, and what a mistake in one reads like."""

import json
import re
from pathlib import Path

import pytest
import yaml

from pne.errors import UserError
from pne.spec.__main__ import main
from pne.spec.reading import check_model, read_declaration, read_model, read_yaml
from pne.spec.schema import Column, Contrast, Published, Row, Table, Track, TrackDataset

TABLE = """\
table: own
question: Does it help?
dataset: cityscapes
model: deeplabv3_r50
columns:
  label: {title: Loss, kind: label}
  miou: {title: mIoU, kind: metric, metric: miou}
rows:
  base: {label: without}
  ours: {label: with, baseline: base, contrast: {use: pne}}
"""


CAPTION = "paper.captoin: unknown key; did you mean caption"
METRICS = "calibration_error, time_s, peak_memory_mib, gradient_norm, weight_std or iou:<class>"


def read_table(tmp_path, text):
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    return read_declaration(path, Table, "table")


def test_a_table_needs_few_keys(tmp_path):
    table = read_table(tmp_path, TABLE)
    assert list(table.rows) == ["base", "ours"]
    assert table.evaluation == "single_scale"
    assert table.number is None
    assert all(row.is_trained for row in table.rows.values())


@pytest.mark.parametrize(
    ("given", "value", "kind"),
    [(76.4, 76.4, "paper"), (None, None, "not-reported"), ({"value": 77.1, "kind": "quoted-zoo"}, 77.1, "quoted-zoo")],
)
def test_published_cells_in_short(given, value, kind):
    cell = Published.model_validate(given)
    assert (cell.value, cell.kind) == (value, kind)


QUOTED = {"a": {"value": 79.2, "kind": "quoted"}}


@pytest.mark.parametrize(
    ("keys", "trained"),
    [
        ({}, True),
        ({"published": QUOTED}, False),
        ({"published": QUOTED | {"b": None}}, False),
        ({"published": {"a": {"value": 77.1, "kind": "quoted-zoo"}, "b": None}}, True),
        ({"published": {"a": 80.3}}, True),
        ({"trained": False}, False),
        ({"trained": True, "published": QUOTED}, True),
    ],
)
def test_literature_is_not_trained_but_the_zoo_s_models_are_unless_the_row_says_so(keys, trained):
    assert Row(label="x", **keys).is_trained is trained


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("question: Does", "qestion: Does", ["qestion: unknown key", "did you mean question?"]),
        ("rows:", "paper: {label: x, captoin: y}\nrows:", [f"{CAPTION}? allowed: label, number, caption"]),
        ("baseline:", "basline:", ["rows.ours.basline: unknown key", "did you mean baseline?", "allowed: label"]),
        ("kind: label}", "kind: lable}", ["columns.label.kind:", "'label'", "got 'lable'"]),
        ("baseline: base", "baseline: bas", ["rows.ours.baseline: no row 'bas'", "rows: base, ours"]),
        ("metric: miou}", "metric: miou, relative_to: bas}", ["columns.miou.relative_to: no row 'bas'", "rows: base"]),
        ("{label: without}", "{dagger: true}", ["rows.base.label: missing"]),
        ("without}", "without, published: {mio: 3}}", ["rows.base.published: no column 'mio'", "label, miou"]),
        ("metric: miou}", "metric: moiu}", ["columns.miou", METRICS, "'moiu'"]),
        ("kind: metric, metric: miou", "kind: metric", ["columns.miou", "metric None"]),
        ("  base:", "  Base Row:", ["rows.Base Row"]),
        ("table: own", "table: other", ["table: expected 'own'", "got 'other'"]),
        ("title: Loss", "title: [Loss]", ["columns.label.title", "got ['Loss']"]),
        ("kind: label", "kind: label, evaluation: single_scale", ["columns.label", "only columns of kind metric"]),
        ("model: deeplabv3_r50", "layout: sweep", ["rows.base.group: no group 'all'"]),
        ("model: deeplabv3_r50", "layout: settings", ["rows.base.reads"]),
        ("{label: without}", "{label: without, reads: batch_size}", ["rows.base.reads: rows of settings tables"]),
        ("label: without}", "label: without, published: {miou: .nan}}", ["rows.base.published.miou"]),
    ],
)
def test_a_mistake_names_file_key_and_what_is_allowed(tmp_path, old, new, parts):
    assert old in TABLE
    with pytest.raises(UserError) as caught:
        read_table(tmp_path, TABLE.replace(old, new, 1))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'own.yaml'}: ")
    assert [part for part in parts if part not in message] == []


def test_all_mistakes_come_at_once_ten_at_most(tmp_path):
    rows = "".join(f"  row_{i}: {{label: x, wrong_{i}: 1}}\n" for i in range(14))
    with pytest.raises(UserError) as caught:
        read_table(tmp_path, TABLE + rows)
    lines = str(caught.value).splitlines()
    assert len(lines) == 11
    assert "rows.row_0.wrong_0: unknown key" in lines[0]
    assert "rows.row_9.wrong_9: unknown key" in lines[9]
    assert lines[10] == "... and 4 more"


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        (TABLE + "  base: {label: again}\n", ":11:3", "'base' is given twice"),
        ("table: own\ntable: own\n", ":2:1", "'table' is given twice"),
        ("table: [own\n", ":2:1", "no valid YAML"),
        ("a: b: c\n", ":1:5", "no valid YAML"),
    ],
)
def test_broken_yaml_names_the_place(tmp_path, text, place, problem):
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=rf"^{re.escape(f'{path}{place}: ')}.*{problem}"):
        read_yaml(path)


@pytest.mark.parametrize("value", ["2026-13-31", "2026-02-30T99:99:99", "!!int abc", "!!bool maybe", "!!timestamp x"])
def test_values_that_the_parser_refuses_name_the_file(tmp_path, value):
    path = tmp_path / "own.yaml"
    path.write_text(f"a: {value}")
    with pytest.raises(UserError, match=r"own\.yaml: no valid YAML: "):
        read_yaml(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=r"own\.yaml: no such file"):
        read_declaration(path, Table, "table")


def test_numbers_without_a_point_are_numbers():
    assert read_yaml(Path("a.yaml"), "[1e-3, -2E+4, 1.e5, 1e, e3, 0x1e3]") == [0.001, -20000.0, 1e5, "1e", "e3", 0x1E3]


def test_merge_keys_of_yaml_are_no_duplicates(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("a: &a {x: 1}\nb: {<<: *a, x: 2}\n", encoding="utf-8")
    assert read_yaml(path) == {"a": {"x": 1}, "b": {"x": 2}}


@pytest.mark.parametrize("text", ["", "- a\n", "just words\n"])
def test_a_file_without_keys_is_an_error(tmp_path, text):
    with pytest.raises(UserError, match="expected keys and values"):
        read_table(tmp_path, text)


def test_a_missing_file_and_foreign_bytes_are_errors(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        read_yaml(tmp_path / "bytes.yaml")


def test_schemas_are_those_of_the_models(repository, tmp_path):
    """``python -m pne.spec schema`` has been run since the models last changed."""
    assert main(["schema", "--out", str(tmp_path)]) == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {path.name: path.read_text() for path in (repository / "experiments/schemas").glob("*.json")} == written


@pytest.mark.parametrize("kind", ["table", "track", "contrast"])
def test_every_declaration_fits_its_schema_and_a_wrong_one_does_not(repository, kind):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((repository / f"experiments/schemas/{kind}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    folder = repository / "experiments" / (kind if kind == "contrast" else f"{kind}s")
    files = sorted(folder.glob("*.yaml"))
    assert files
    for path in files:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        validator.validate(data)
        assert not validator.is_valid(data | {"unknown": 1})


def test_the_documentation_names_every_key(repository):
    text = (repository / "docs/declarations.md").read_text(encoding="utf-8")
    for model in (Table, Column, Row, Published, Track, TrackDataset, Contrast):
        for key in model.model_fields:
            assert re.search(rf"`[^`]*\b{key}\b[^`]*`", text), f"{model.__name__}.{key}"


def test_a_json_file_is_read_by_the_same_rules_and_ends_with_the_remedy(tmp_path):
    path = tmp_path / "cell.json"
    for text, problem in [
        (None, "not made yet"),
        ("{", "no valid JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); make it"),
        ("[1]", "expected keys and values, got [1]; allowed: value, delta, bold, kind; make it"),
        ('{"valeu": 1}', "valeu: unknown key; did you mean value? allowed: value, delta, bold, kind; make it"),
    ]:
        if text is not None:
            path.write_text(text)
        with pytest.raises(UserError) as caught:
            read_model(path, Published, missing="not made yet", remedy="make it")
        assert str(caught.value) == f"{path}: {problem}"
    path.write_text('{"value": 1}')
    assert read_model(path, Published).value == 1
    with pytest.raises(UserError, match=r"^cells.a: expected keys and values, got 3"):
        check_model(Row, 3, "cells.a.")
