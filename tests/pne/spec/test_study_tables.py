"""Tables that take the loss apart: offered where their data are, made when asked for, sharing what they can."""

from itertools import pairwise
from pathlib import Path

import pytest

from pne.engine.provenance import code_sha256
from pne.options import PRESETS, resolve_options
from pne.spec import ResolvedTrack, load_track

STUDIES = {"losses", "controls", "fidelity", "temperature_fair", "negatives", "anchors"}
TRACKS = ("quick", "camvid_tiny", "camvid", "paper")
SHARED = {
    "losses.asymmetric": "construction.asymmetric_ias_cn",
    "losses.cipc_memory": "embedding.cipc",
    "losses.pne": "contrast_form.pne_r50",
    "losses.pne_authors": "embedding.pne_authors",
    "controls.base": "contrast_form.base_r50",
    "controls.ohem": "losses.ohem",
    "fidelity.authors": "embedding.pne_authors",
    "temperature_fair.temperature_1": "hyperparameters.temperature_1",
    "negatives.hard": "construction.pne_ias",
    "anchors.uniform_200": "contrast_form.pne_r50",
}


@pytest.fixture(params=TRACKS, scope="module")
def track(request: pytest.FixtureRequest, repository: Path) -> ResolvedTrack:
    return load_track(request.param, experiments=repository / "experiments", studies=True)


def rows_of(track: ResolvedTrack, table: str) -> dict[str, dict]:
    """Contrast of each row, with all options of its loss."""
    found = {}
    for key, row in track.tables[table].rows.items():
        contrast = track.runs[row.runs[0]].contrast
        if contrast is not None:
            found[key] = dict(contrast, options=resolve_options(contrast["loss"], contrast["options"]))
    return found


def test_studies_are_left_out_unless_asked_for(track: ResolvedTrack, repository: Path) -> None:
    plain = load_track(track.name, experiments=repository / "experiments")
    assert {key for key, table in track.tables.items() if table.declaration.study} == STUDIES
    assert set(track.tables) - set(plain.tables) == STUDIES
    assert all(track.tables[name].available for name in STUDIES)
    assert plain.runs == {run: track.runs[run] for run in plain.runs}
    assert len(track.runs) == len(plain.runs) + 60
    one = load_track(track.name, experiments=repository / "experiments", tables=["negatives"])
    assert set(one.tables) == {"negatives"}


def test_equal_settings_share_runs_with_other_tables(track: ResolvedTrack) -> None:
    for places in SHARED.items():
        (own, other) = ((table, row) for table, _, row in (place.partition(".") for place in places))
        assert track.tables[own[0]].rows[own[1]].runs == track.tables[other[0]].rows[other[1]].runs, places


def test_ohem_keeps_a_fifth_of_the_crop(track: ResolvedTrack) -> None:
    config = track.config(track.tables["losses"].rows["ohem"].runs[0])
    height, width = config.model.data_preprocessor["size"]
    assert config.model.decode_head.sampler.min_kept == round(0.2 * height * width)


def test_temperatures_keep_the_scale_of_the_gradient(track: ResolvedTrack) -> None:
    rows, swept = rows_of(track, "temperature_fair"), rows_of(track, "hyperparameters")
    assert [row["weight"] / row["options"]["temperature"] for row in rows.values()] == pytest.approx([1.3] * 8)
    assert set(rows) == {key for key in swept if key.startswith("temperature")}
    assert all(row["options"] == swept[key]["options"] for key, row in rows.items())


def test_fidelity_changes_one_option_after_the_other_and_ends_where_it_began(track: ResolvedTrack) -> None:
    rows = rows_of(track, "fidelity")
    path = [row["options"] for key, row in rows.items() if not key.startswith("scaled")]
    path.append(path[0])
    presets = [resolve_options("PNELoss", {}, preset) for preset in ("paper", "authors")]
    changes = [[name for name in old if old[name] != new[name]] for old, new in pairwise(path)]
    number = len(PRESETS["PNELoss"]["authors"])
    assert [path[0], path[number]] == presets
    assert all(len(changed) == 1 for changed in changes)
    assert changes[:number] == changes[number:]
    for key, row in rows.items():
        if key.startswith("scaled"):
            same = rows[key.removeprefix("scaled_")]
            assert (row["options"], same["weight"]) == (same["options"], 1.3)
            assert row["weight"] != 1.3


def test_the_code_of_classes_named_by_path_counts_for_their_runs(track: ResolvedTrack) -> None:
    base, lovasz, *named = (
        track.runs[track.tables["losses"].rows[row].runs[0]] for row in ("base", "lovasz", "focal", "ohem")
    )
    assert base.modules == lovasz.modules == []
    assert all(run.modules == ["pne.heads.hard_pixels"] for run in named)
    assert code_sha256(base) == code_sha256(lovasz) != code_sha256(named[0]) == code_sha256(named[1])
