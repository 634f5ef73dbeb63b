"""What docs/reproducing.md says of runs, files and commands is what there is."""

import re
from pathlib import Path

import pytest

from pne.datasets.layouts import layout
from pne.rehearse.__main__ import parser
from pne.rehearse.record import group_runs
from pne.spec import load_track


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs/reproducing.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def track(repository: Path):
    return load_track("paper", experiments=repository / "experiments")


def test_counts_of_runs_and_rehearsals(page: str, track) -> None:
    assert f"{len(group_runs(track))} rehearsals stand for the {len(track.runs)} runs" in " ".join(page.split())
    for key, table in track.tables.items():
        runs = {run for row in table.rows.values() for run in row.runs.values()}
        if runs:
            found = re.search(rf"^\| `{key}`[^|]*\| (\d+) \|", page, re.MULTILINE)
            assert found, key
            assert int(found[1]) == len(runs)


def test_every_file_of_initial_weights_is_listed_with_its_address(page: str, track) -> None:
    for run in track.runs:
        folder, _, name = track.initial_weights(run).rpartition("/")
        assert re.search(
            rf"^\| `{re.escape(name)}` \|.*`{track.runs[run].model}`.*\| {re.escape(folder)}/ \|", page, re.M
        )


@pytest.mark.parametrize("name", ["cityscapes", "coco_stuff", "ade20k"])
def test_folders_and_official_numbers_of_the_data(page: str, track, name: str) -> None:
    assert track.declaration.datasets[name].folder in page
    counts = ", ".join(str(split.count) for split in layout(name).splits.values())
    assert re.search(rf"\s{counts}$", page, re.MULTILINE)


def test_options_of_the_rehearsal_exist(page: str) -> None:
    known = {option for action in parser()._actions for option in action.option_strings}
    section = page.split("## 4. Rehearse")[1].split("## 5.")[0]
    named = set(re.findall(r"`?(--[a-z-]+)", section)) - {"--workflow-profile", "--config"}
    assert named
    assert named <= known
