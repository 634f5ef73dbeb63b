"""Trained weights stay the same to the bit: 40 iterations of every loss and every family of models, on one thread.

Rounding differs between kinds of CPU and versions of torch, so that the golden file says for which it was made.
"""

import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from tiny_runs import scored, trained

from pne.spec import load_track, write_spec
from pne.train import main

LOSSES = ("asymmetric", "cipc", "cipc_memory", "pne", "pne_authors")
OTHER_FAMILIES = ("encnet_r101", "hrnet_w48", "ocrnet_w48", "upernet_swin_b")


def this_place() -> dict[str, str]:
    """Name what decides how sums are rounded."""
    about = {"torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability()}
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except FileNotFoundError:
        return {"cpu": f"{platform.system()} {platform.machine()}", **about}
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    names = ("vendor_id", "cpu family", "model")
    return {"cpu": " ".join(facts.get(name, platform.machine()) for name in names), **about}


def write_declarations(repository: Path, folder: Path) -> None:
    """Copy the declarations; one table asks for the runs, and a batch holds two images."""
    shutil.copytree(repository / "experiments", folder, ignore=shutil.ignore_patterns("tables"))
    rows = {"base": {"label": "base"}}
    rows |= {loss: {"label": loss, "contrast": {"use": loss}} for loss in LOSSES}
    rows |= {model: {"label": model, "model": model, "contrast": {"use": "pne"}} for model in OTHER_FAMILIES}
    table = {
        "table": "golden",
        "question": "Do weights stay the same?",
        "caption": "A run for each loss and for each family of models.",
        "dataset": "cityscapes",
        "model": "deeplabv3_r50",
        "evaluation": "single_scale",
        "columns": {"row": {"title": "Row", "kind": "label"}},
        "rows": rows,
    }
    (folder / "tables").mkdir()
    (folder / "tables" / "golden.yaml").write_text(yaml.safe_dump(table, sort_keys=False))
    schedule = folder / "schedules" / "street_100.py"
    text = schedule.read_text()
    assert "batch_size=8" in text
    schedule.write_text(text.replace("batch_size=8", "batch_size=2"))


def test_weights_of_every_loss_and_family_stay_the_same(
    request: pytest.FixtureRequest, repository: Path, street: Path, tmp_path: Path, golden: Callable
) -> None:
    place = this_place()
    file = repository / "tests" / "golden" / "weights" / "weights.json"
    if not request.config.getoption("--renew-goldens"):
        made_for = json.loads(file.read_text())["place"]
        if place != made_for:
            pytest.skip(f"golden weights are those of {made_for}, this is {place}")
    write_declarations(repository, tmp_path / "experiments")
    folders = {"experiments": tmp_path / "experiments", "data_root": street.parent, "results": tmp_path / "results"}
    track = load_track("quick", iterations=40, limit=8, **folders)
    specs = [write_spec(run, track.config(name)) for name, run in sorted(track.runs.items())]
    assert len(specs) == 1 + len(LOSSES) + len(OTHER_FAMILIES)
    assert main([str(spec) for spec in specs]) == 0
    runs = {
        spec.parent.name: {"weights_sha256": trained(spec).weights_sha256, "miou": scored(spec).miou} for spec in specs
    }
    golden("weights", {"weights.json": json.dumps({"place": place, "runs": runs}, indent=1) + "\n"})
