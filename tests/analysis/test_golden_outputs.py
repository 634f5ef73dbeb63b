"""Every printed file stays the same to the byte: tables, claims and pages of made-up results, and published tables."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from samples import change

from pne.spec import load_track

SCORES = """scores:
  - {table: cityscapes, row: deeplabv3, miou: 78.1, date: 2026-01-31, url: https://example.org/a}
  - {table: cityscapes, row: encnet_pne, miou: 79.3, date: 2026-02-28, url: https://example.org/b}
"""
TRACKS = {"quick": (0, 1, 2), "paper": (0,)}


def make_up_results(track: str, results: Path, declarations: Path, make_up: Callable) -> None:
    """Write results of a track; the digits in its name say what is the matter with a run, and most are fine."""
    for run in load_track(track, experiments=declarations, results=results, seeds=TRACKS[track]).runs.values():
        number = int(run.run[-8:], 16)
        kind = number % 12
        if kind == 0:
            continue
        make_up(run, np.random.default_rng(number), skill=0.55 + number % 97 / 970, images=6, classes=4)
        train, single = run.directory / "train.json", run.directory / "single_scale.json"
        if kind == 1:
            change(train, code_sha256="0" * 64)
        elif kind == 2:
            change(train, resumes=2, earlier_code_sha256=["1" * 64])
        elif kind == 3:
            change(train, dataset_fingerprint="other data", micro_batch=1)
        elif kind == 4:
            change(single, bfloat16=True)
        elif kind == 5:
            (run.directory / "single_scale.json").unlink()
        elif kind == 6 and run.contrast is not None:
            summary = json.loads(train.read_text())["contrast"]
            change(train, contrast={**summary, "active_fraction": 0.2, "healthy": False})
        elif kind == 7:
            change(train, device="another device", peak_memory_mib=1234.5)


@pytest.fixture(scope="module")
def declarations(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The declarations with scores of an evaluation server."""
    folder = tmp_path_factory.mktemp("declarations") / "experiments"
    shutil.copytree(repository / "experiments", folder)
    (folder / "external.yaml").write_text(SCORES)
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, declarations: Path, benchmark_module: ModuleType) -> Path:
    """Results of two tracks: three seeds of the quick one, one of the paper's with scores of a server."""
    folder = tmp_path_factory.mktemp("results")
    for track in TRACKS:
        make_up_results(track, folder, declarations, benchmark_module.make_up_results)
    return folder


def texts(results: Path, folder: str) -> dict[str, str]:
    """Read what was printed; the place of the results and the hash of today's code are named by what they are."""
    codes = {json.loads(path.read_text())["provenance"]["code_sha256"] for path in results.glob("*/runs/*/train.json")}
    names = {f"{results}/": "results/", **dict.fromkeys(codes - {"0" * 64}, "today's code")}
    found = {path.name: path.read_bytes().decode() for path in (results / folder).iterdir()}
    for old, new in names.items():
        found = {name: text.replace(old, new) for name, text in found.items()}
    return found


@pytest.mark.parametrize("track", TRACKS)
def test_measured_outputs(
    track: str, results: Path, declarations: Path, in_repository: Path, golden: Callable, command: Callable, capsys
) -> None:
    seeds = ",".join(map(str, TRACKS[track]))
    options = ("--track", track, "--seeds", seeds, "--results", results, "--experiments", declarations)
    tables = [name for name, table in load_track(track).tables.items() if table.available and name != "embedding"]
    chosen = [part for name in tables for part in ("--table", name)]
    command("analysis.tables", *chosen, *options)
    golden(f"tables/{track}", texts(results, f"{track}/tables"))
    capsys.readouterr()
    command("analysis.claims", *options)
    names = ("claims.md", "claims.csv", "claims.json")
    assert capsys.readouterr().out.split() == [f"{results}/{track}/claims/{name}" for name in names]
    golden(f"claims/{track}", texts(results, f"{track}/claims"))
    pages = {"quick": ("cityscapes",), "paper": ("cityscapes", "claims")}[track]  # the quick track's claims are long
    command("analysis.report", *[part for page in pages for part in ("--page", page)], *options)
    golden(f"pages/{track}", texts(results, f"{track}/report"))


def test_published_tables(tmp_path: Path, golden: Callable, command: Callable) -> None:
    command("analysis.tables", "--published", "--results", tmp_path)
    golden("tables/published", texts(tmp_path, "published/tables"))
