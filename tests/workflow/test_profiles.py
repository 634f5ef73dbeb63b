"""The profiles agree on what protects results, and the SLURM profile's commented lines are valid once uncommented."""

import re
from pathlib import Path

import pytest
import yaml

SHARED = ("keep-going", "rerun-triggers", "ignore-incomplete", "show-failed-logs", "quiet")


def profile(repository: Path, name: str) -> str:
    return (repository / "workflows/profiles" / name / "config.yaml").read_text()


@pytest.mark.parametrize("name", ["local", "slurm"])
def test_what_protects_results_is_the_same_in_all_profiles(repository: Path, name: str) -> None:
    default, other = (yaml.safe_load(profile(repository, each)) for each in ("default", name))
    assert {key: other[key] for key in SHARED} == {key: default[key] for key in SHARED}


def test_snakemake_finds_the_default_profile(repository: Path) -> None:
    assert (repository / "profiles").is_symlink()
    assert (repository / "profiles/default/config.yaml").is_file()


def test_the_block_to_fill_in_is_valid_line_by_line(repository: Path) -> None:
    block = profile(repository, "slurm").split("# ---")[1]
    default = re.sub(r"^  # ", "  ", block.split("\n", 1)[1].split("\n# A run asks")[0], flags=re.MULTILINE)
    filled = yaml.safe_load(default)["default-resources"]
    assert {"slurm_account", "slurm_partition", "qos", "constraint", "slurm_extra", "mem_mb", "runtime"} == set(filled)
    model = re.search(r"^# (set-resources: \{.*)$", block, flags=re.MULTILINE)
    assert model
    gpu_rules = {"train", "retrain", "evaluate"}
    assert set(yaml.safe_load(model[1])["set-resources"]) == gpu_rules
    packed = r"^# ((?:groups|group-components|resources|set-resource-scopes): .*)$"
    packing = "\n".join(re.findall(packed, block, flags=re.MULTILINE))
    assert yaml.safe_load(packing) == {
        "groups": {"train": "training"},
        "group-components": {"training": 5},
        "resources": {"gpu": 1},
        "set-resource-scopes": {"gpu": "local"},
    }
    gres = "\n".join(re.findall(r"^# ((?:set-resources:|  \w+: ).*)$", block.split("rejects")[1], flags=re.MULTILINE))
    assert set(yaml.safe_load(gres)["set-resources"]) == gpu_rules
