"""The ablation that the README shows is what it promises: one file, one new run, a table on every track."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from pne.spec import load_track


@pytest.fixture(scope="module")
def example(repository: Path) -> str:
    """The YAML text as it stands in the README's section about own ablations."""
    section = (repository / "README.md").read_text(encoding="utf-8").split("## An ablation of your own", 1)[1]
    (text,) = re.findall(r"```yaml\n(.*?)```", section.split("\n## ", 1)[0], re.DOTALL)
    return text


@pytest.mark.parametrize("track", ["quick", "camvid", "paper"])
def test_the_readme_s_ablation_adds_one_run_to_every_track(repository, tmp_path, example, track):
    folder = tmp_path / "experiments"
    shutil.copytree(repository / "experiments", folder)
    before = load_track(track, experiments=folder).runs
    name = yaml.safe_load(example)["table"]
    (folder / "tables" / f"{name}.yaml").write_text(example, encoding="utf-8")
    after = load_track(track, experiments=folder)
    table = after.tables[name]
    assert table.available, table.reason
    assert set(before) < set(after.runs)
    (new,) = set(after.runs) - set(before)
    assert new in {run for row in table.rows.values() for run in row.runs.values()}
    assert all(row.runs for row in table.rows.values()), "every row points at a run"
    assert {run: after.runs[run] for run in before} == before, "no other run changes"


def test_the_readme_names_the_example_s_target(repository, example):
    assert f"`snakemake table_{yaml.safe_load(example)['table']}`" in (repository / "README.md").read_text("utf-8")
