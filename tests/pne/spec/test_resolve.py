"""From the declarations to runs: how many, which are shared, and what a mistake reads like."""

from pathlib import Path

import pytest

import pne.spec.compose as builder
from pne.errors import UserError
from pne.spec import load_track
from pne.spec.__main__ import check_declarations
from pne.spec.schema import Projection

ADDED = {  # what each table of the paper, as printed, adds to the trainings of those before it
    "settings": 0,
    "cityscapes": 8,
    "coco_stuff": 7,
    "ade20k": 3,
    "contrast_form": 4,
    "construction": 4,
    "positive_weights": 2,
    "hyperparameters": 14,
}
WEIGHTS = "tables/positive_weights.yaml"
HYPER = "tables/hyperparameters.yaml"
ABLATION = """\
table: samples
question: How many samples does an anchor need?
dataset: cityscapes
model: deeplabv3_r50
columns:
  samples: {title: Samples, kind: label}
  miou: {title: mIoU, kind: metric, metric: miou}
rows:
  few: {label: "10", contrast: {use: pne, num_samples: 10}}
  usual: {label: "100", contrast: {use: pne}}
"""


@pytest.fixture(scope="module", params=["quick", "paper"])
def track(request, repository):
    return load_track(request.param, experiments=repository / "experiments", tables=ADDED)


def runs_of(table):
    return {run for row in table.rows.values() for run in row.runs.values()}


def test_the_paper_is_42_trainings_in_eight_tables_in_printed_order(track):
    assert all(table.available for table in track.tables.values())
    assert [table.declaration.number for table in track.tables.values()] == [1, 2, 3, 4, 5, 6, 7, 8]
    seen, added = set(), {}
    for name, table in track.tables.items():
        added[name] = len(runs_of(table) - seen)
        seen |= runs_of(table)
    assert list(added.items()) == list(ADDED.items())
    assert seen == set(track.runs)
    assert len(seen) == 42


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (77.5, ("contrast_form.asymmetric_r50", "construction.asymmetric")),
        (
            80.3,
            (
                "contrast_form.pne_r50",
                "construction.pne_ias_cn",
                "positive_weights.softmax",
                "hyperparameters.temperature_1",
                "hyperparameters.alpha_1_3",
            ),
        ),
    ],
)
def test_a_number_that_the_paper_prints_in_several_tables_is_one_run(track, value, rows):
    places = {
        f"{table}.{row}": line.runs[0]
        for table, resolved in track.tables.items()
        for row, line in resolved.rows.items()
        if (cell := line.declaration.published.get("miou")) is not None and cell.value == value
    }
    assert tuple(places) == rows
    assert len(set(places.values())) == 1


def test_construction_switches_one_thing_at_a_time(track):
    rows = track.tables["construction"].rows
    options = {key: track.runs[row.runs[0]].contrast["options"] for key, row in rows.items()}
    assert options == {
        "pne": {"anchor_sets": "mixed", "negatives": "hard"},
        "asymmetric": {"anchor_sets": "mixed", "negatives": "hard"},
        "pne_ias": {"negatives": "hard"},
        "pne_cn": {"anchor_sets": "mixed"},
        "pne_ias_cn": {},
        "asymmetric_ias_cn": {},
    }


def test_deltas_are_taken_as_the_paper_prints_them(track):
    """The declared baseline of each row explains its printed difference."""
    for table in track.tables.values():
        for row in table.rows.values():
            for column, cell in row.declaration.published.items():
                if cell.delta is None:
                    continue
                base = table.rows[row.baseline].declaration.published[column]
                assert round(cell.value - base.value, 2) == cell.delta, (table.key, row.key, column)


def test_evaluations_are_those_that_any_table_asks_for(track, pristine):
    for table, row, expected in (
        ("contrast_form", "pne_r50", ["single_scale"]),
        ("contrast_form", "pne_r101", ["single_scale", "multi_scale_flip"]),  # also in the Cityscapes table
        ("ade20k", "ocrnet", ["single_scale", "multi_scale_flip"]),
    ):
        run = track.runs[track.tables[table].rows[row].runs[0]]
        assert run.evaluations == expected
    alone = pristine.load(track.name, tables=["contrast_form"])
    run = alone.tables["contrast_form"].rows["pne_r101"].runs[0]
    assert alone.runs[run] == track.runs[run]
    assert (list(alone.tables), len(alone.runs)) == (["contrast_form"], 6)


def test_camvid_offers_the_cityscapes_table_and_the_ablations(repository):
    track = load_track("camvid", experiments=repository / "experiments")
    offered = {name for name in ADDED if track.tables[name].available}
    assert offered == {"cityscapes", "contrast_form", "construction", "positive_weights", "hyperparameters"}
    assert track.tables["ade20k"].reason == "track camvid has no data set ade20k"
    assert runs_of(track.tables["ade20k"]) == set()
    assert {run.dataset_title for run in track.runs.values()} == {"CamVid"}


def test_settings_are_read_from_the_configs_of_the_runs(declarations):
    settings = declarations.load("paper").tables["settings"].settings
    networks = ["encnet_r101", "deeplabv3_r101", "hrnet_w48", "ocrnet_w48", "deeplabv3_r50"]
    assert settings["iterations"]["cityscapes"] == [(40000, networks)]
    assert settings["batch_size"]["ade20k"] == [(16, ["ocrnet_w48"])]
    assert settings["learning_rate"]["coco_stuff"] == [
        (0.001, ["deeplabv3_r101", "ocrnet_w48"]),
        (6e-5, ["upernet_swin_b"]),
    ]
    declarations.replace("schedules/ade20k_160k.py", "batch_size=16", "batch_size=12")
    settings = declarations.load("paper").tables["settings"].settings
    assert settings["batch_size"]["ade20k"] == [(12, ["ocrnet_w48"])]


# One new file is one new ablation.


BOTH = {"quick", "paper"}
LIGHT = "class 'traffic light' in cityscapes (SyntheticStreet (city)), asked for by columns.miou; "


@pytest.mark.parametrize(
    ("words", "available", "lacking", "reason"),
    [
        ({"cityscapes": "coco_stuff", "deeplabv3_r50": "upernet_swin_b"}, BOTH, "camvid", "data set coco_stuff"),
        ({"deeplabv3_r50": "upernet_swin_b"}, BOTH, "camvid", "model upernet_swin_b"),
        ({"metric: miou": "metric: 'iou:traffic light'"}, {"paper"}, "quick", LIGHT),
    ],
)
def test_a_new_ablation_is_absent_where_a_track_lacks_its_words(declarations, words, available, lacking, reason):
    text = ABLATION
    for old, new in words.items():
        text = text.replace(old, new)
    declarations.write("tables/samples.yaml", text)
    tables = {name: track.tables["samples"] for name, track in check_declarations(declarations.folder).items()}
    assert {name for name, table in tables.items() if table.available} == available
    assert tables[lacking].reason.startswith(f"track {lacking} has no {reason}")
    assert tables[lacking].rows["few"].runs == {}


def test_a_track_may_list_its_tables(declarations):
    declarations.change("tracks/quick.yaml", ("tables",), ["construction"])
    track = declarations.load()
    assert [name for name, table in track.tables.items() if table.available] == ["construction"]
    assert len(track.runs) == 6


def test_config_changes_of_a_row_reach_the_plain_model(declarations):
    changes = "{model.decode_head.dropout_ratio: 0.3, model.backbone: {depth: 34}}"
    row = f"  wide: {{label: wide, contrast: {{use: pne}}, config: {changes}}}\n"
    declarations.write("tables/samples.yaml", ABLATION + row)
    track = declarations.load()
    config = track.config(track.tables["samples"].rows["wide"].runs[0])
    assert config.model.decode_head.dropout_ratio == 0.3
    assert config.model.decode_head.type == "ContrastHead"
    assert config.model.backbone.depth == 34
    assert config.model.backbone.base_channels == 16


def test_two_names_of_one_file_are_one_model(declarations):
    declarations.change("tracks/quick.yaml", ("models", "deeplabv3_r101"), "tiny_deeplabv3_r18")
    track = declarations.load()
    rows = track.tables["contrast_form"].rows
    assert rows["pne_r50"].runs == rows["pne_r101"].runs
    assert track.runs[rows["pne_r101"].runs[0]].model == "deeplabv3_r50"


@pytest.mark.parametrize("written", ["{channels: 256}", "{norm_cfg: null, hidden: null}", "{}"])
def test_a_projection_spelled_out_as_its_default_is_the_same_run(declarations, written):
    before = declarations.load().runs
    declarations.replace(HYPER, "weight: 0.4", f"weight: 0.4, projection: {written}")
    assert declarations.load().runs == before
    declarations.replace(HYPER, f"projection: {written}", "projection: {channels: 64}")
    assert declarations.load().runs.keys() != before.keys()


def test_the_default_projection_is_that_of_the_branch():
    branch = pytest.importorskip("pne.heads.branch").ContrastBranch
    plain = branch(in_channels=8, num_classes=3, loss={"type": "PNELoss"})
    spelled = branch(in_channels=8, num_classes=3, loss={"type": "PNELoss"}, projection=Projection().model_dump())
    assert repr(spelled) == repr(plain)


@pytest.mark.parametrize("seeds", [[-1], [0, 0], [True], ["first"]])
def test_seeds_are_different_whole_numbers_from_zero_on(declarations, seeds):
    with pytest.raises(UserError, match="seeds"):
        declarations.load(seeds=seeds)


@pytest.mark.parametrize("baseline", ["aaf", "encnet_pne"])
def test_a_baseline_is_another_row_that_is_trained(declarations, baseline):
    declarations.replace("tables/cityscapes.yaml", "baseline: encnet", f"baseline: {baseline}")
    expected = rf"rows\.encnet_pne\.baseline: expected another row that is trained, got '{baseline}'"
    with pytest.raises(UserError, match=expected):
        declarations.load()


# Mistakes.

MISTAKES = (Path(__file__).parent / "mistakes.txt").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_file_and_key(declarations, mistake):
    file, old, new, expected = (part.strip().replace("\\n", "\n") for part in mistake.split("~"))
    declarations.replace(file, declarations.text(file) if old == "*" else old, new)
    with pytest.raises(UserError) as caught:
        declarations.load()
    lines = str(caught.value).splitlines()
    start = f"{declarations.path(file)}: {expected}"
    assert any(line.startswith(start) for line in lines), "\n".join([start, *lines])
    assert all(line.startswith(f"{declarations.path(file).parent}/") for line in lines), "nothing else is to blame"


def test_mistakes_in_several_files_come_together(declarations):
    declarations.replace(WEIGHTS, "positive_weight: logit", "positve_weight: logit")
    declarations.replace(HYPER, "temperature: 0.1", "temperature: 0")
    with pytest.raises(UserError) as caught:
        declarations.load()
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["rows.logit", "rows.temperature_0_1"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("copy.yaml", r"copy\.yaml: table: expected 'copy', the file's name, got 'positive_weights'"),
        ("samples.yml", r"samples\.yml: declarations end in \.yaml"),
    ],
)
def test_a_table_under_another_name_than_its_own_is_found(declarations, file, expected):
    declarations.write(f"tables/{file}", declarations.text(WEIGHTS))
    with pytest.raises(UserError, match=expected):
        declarations.load()


@pytest.mark.parametrize(
    ("track", "folder", "arguments", "expected"),
    [
        ("quik", "", {}, r"no track 'quik'; did you mean quick\? allowed: camvid, camvid_short, camvid_small"),
        ("quick", "", {"tables": ["ade"]}, "no table 'ade'; did you mean ade20k"),
        ("quick", "none", {}, "no such folder of declarations"),
    ],
)
def test_unknown_tracks_and_tables_are_named(pristine, track, folder, arguments, expected):
    with pytest.raises(UserError, match=expected):
        load_track(track, experiments=pristine.folder / folder, **arguments)


# Cost.


def test_resolving_reads_each_config_once(repository, monkeypatch):
    read = []
    original = builder.read_inherited
    monkeypatch.setattr(builder, "read_inherited", lambda path, keys: read.append(path) or original(path, keys))
    load_track("paper", experiments=repository / "experiments", seeds=[0, 1, 2])
    assert read
    assert len(read) == len(set(read))
