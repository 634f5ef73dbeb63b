"""Made-up results of real declarations, for tests of what is read from result files."""

import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from samples import run_of

from pne.results import EvaluationResult, TrainResult, read_result, write_result
from pne.spec import ResolvedTrack, Run, load_track

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def benchmark_module() -> ModuleType:
    """The benchmark, which knows how to make results up."""
    spec = importlib.util.spec_from_file_location("analysis_time", REPOSITORY / "benchmarks" / "analysis_time.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def in_repository(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in the root of the checkout, where commands find the declarations."""
    monkeypatch.chdir(REPOSITORY)
    return REPOSITORY


@pytest.fixture
def quick(tmp_path: Path, in_repository: Path) -> ResolvedTrack:
    """The quick track with its results in a temporary folder."""
    return load_track("quick", results=tmp_path)


@pytest.fixture
def three(tmp_path: Path, in_repository: Path) -> ResolvedTrack:
    """The quick track with three seeds and its results in a temporary folder."""
    return load_track("quick", results=tmp_path, seeds=[0, 1, 2])


@pytest.fixture
def options(tmp_path: Path, in_repository: Path) -> list[str]:
    """Options of a command on the quick track with its results in a temporary folder."""
    return ["--track", "quick", "--results", str(tmp_path)]


@pytest.fixture
def compile_latex() -> Callable[[Path], None]:
    """Return a function that compiles the document of a folder of tables."""
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex on this machine")

    def run(folder: Path) -> None:
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
        for _ in range(2):  # the second pass resolves citations
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
            assert done.returncode == 0, done.stdout[-3000:]
        assert (folder / "tables.pdf").stat().st_size > 10_000
        log = (folder / "tables.log").read_text(errors="replace")
        assert "Overfull" not in log
        assert "undefined" not in log

    return run


@pytest.fixture
def finish(benchmark_module: ModuleType) -> Callable[..., None]:
    """Return a function that writes all results of a run, with a given mIoU where one is named."""

    def write(run: Run, miou: float | None = None, **changes: object) -> None:
        generator = np.random.default_rng(run.seed)
        benchmark_module.make_up_results(run, generator, images=6, classes=4)
        for name in run.evaluations:
            path = run.directory / f"{name}.json"
            if miou is not None:
                write_result(path, read_result(path, EvaluationResult).model_copy(update={"miou": miou}))
        path = run.directory / "train.json"
        train = read_result(path, TrainResult)
        of_provenance = {key: changes.pop(key) for key in list(changes) if hasattr(train.provenance, key)}
        of_contrast = {key: changes.pop(key) for key in list(changes) if hasattr(train.contrast, key)}
        if of_provenance:
            changes["provenance"] = train.provenance.model_copy(update=of_provenance)
        if of_contrast:
            changes["contrast"] = train.contrast.model_copy(update=of_contrast)
        write_result(path, train.model_copy(update=changes))

    return write


@pytest.fixture
def score(finish: Callable) -> Callable[..., None]:
    """Finish runs of a table with given mIoU, by row: one of each seed, None for a seed that is not there."""

    def write(track: ResolvedTrack, table: str, rows: Mapping[str, Sequence[float | None]]) -> None:
        for row, values in rows.items():
            for seed, value in enumerate(values):
                if value is not None:
                    finish(run_of(track, table, row, seed), miou=value)

    return write
