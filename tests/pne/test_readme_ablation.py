"""The ablation that the README shows is what it promises: one file, one new run, a table on every track."""

import re
import shutil

import pytest
import yaml

from pne.spec import load_track


@pytest.mark.parametrize("track", ["quick", "camvid", "paper"])
def test_the_readme_s_ablation_adds_one_run_to_every_track(repository, tmp_path, track):
    readme = (repository / "README.md").read_text(encoding="utf-8")
    section = readme.split("## An ablation of your own", 1)[1].split("\n## ", 1)[0]
    (example,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    folder, name = tmp_path / "experiments", yaml.safe_load(example)["table"]
    assert f"`snakemake table_{name}`" in readme
    shutil.copytree(repository / "experiments", folder)
    before = load_track(track, experiments=folder).runs
    (folder / "tables" / f"{name}.yaml").write_text(example, encoding="utf-8")
    after = load_track(track, experiments=folder)
    table = after.tables[name]
    assert table.available, table.reason
    (new,) = set(after.runs) - set(before)
    assert new in {run for row in table.rows.values() for run in row.runs.values()}
    assert all(row.runs for row in table.rows.values()), "every row points at a run"
    assert {run: after.runs[run] for run in before} == before, "no other run changes"
