"""Copies of the declarations that a test may change; a few small trainings that tests share."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_runs import CONTRAST, draw_images, spied, write_run

from pne.datasets.layouts import LAYOUTS, Split
from pne.datasets.synthetic_street.__main__ import write as draw_street
from pne.spec import Run, load_track


class Declarations:
    """A folder of declarations of a test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / name

    def text(self, name: str) -> str:
        return self.path(name).read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> Path:
        self.path(name).write_text(text, encoding="utf-8")
        return self.path(name)

    def replace(self, name: str, old: str, new: str) -> None:
        text = self.text(name)
        assert old in text, f"{name} no longer holds {old!r}"
        self.write(name, text.replace(old, new, 1))

    def change(self, name: str, keys: tuple, value: Any) -> None:
        """Set a key of a YAML file, given by its path."""
        place = data = yaml.safe_load(self.text(name))
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        self.write(name, yaml.safe_dump(data, sort_keys=False))

    def load(self, track: str = "quick", **arguments: Any):
        return load_track(track, experiments=self.folder, **arguments)


@pytest.fixture(scope="session")
def pristine(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Declarations:
    """``experiments`` without tables that are not the paper's; not to be changed."""
    folder = tmp_path_factory.mktemp("pristine") / "experiments"
    shutil.copytree(repository / "experiments", folder)
    for path in (folder / "tables").glob("*.yaml"):
        if "paper" not in yaml.safe_load(path.read_text(encoding="utf-8")):
            path.unlink()
    return Declarations(folder)


@pytest.fixture(scope="session")
def quick_runs(pristine: Declarations) -> Mapping[str, Run]:
    """The paper's runs on the quick track."""
    return pristine.load().runs


@pytest.fixture
def declarations(pristine: Declarations, tmp_path: Path) -> Declarations:
    """A copy of the pristine declarations that the test may change."""
    shutil.copytree(pristine.folder, tmp_path / "experiments")
    return Declarations(tmp_path / "experiments")


@pytest.fixture
def error_of(capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """Return a function that runs a command that has to fail, and returns what it tells: no traceback."""

    def run(main: Callable[[list[str]], int], *words: object, status: int = 2) -> str:
        capsys.readouterr()
        assert main([*map(str, words)]) == status
        error = capsys.readouterr().err
        assert "Traceback" not in error
        return error

    return run


@pytest.fixture(scope="session")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``street_city`` on disk; tests that change it copy it first."""
    folder = tmp_path_factory.mktemp("street") / "street_city"
    assert draw_street("street_city", folder)
    return folder


@pytest.fixture
def state_counts(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[str, Split], int]], None]:
    """Return a function that states other official numbers of images for the splits of a data set."""

    def state(dataset: str, count: Callable[[str, Split], int]) -> None:
        known = LAYOUTS[dataset]
        splits = {name: replace(split, count=count(name, split)) for name, split in known.splits.items()}
        monkeypatch.setitem(LAYOUTS, dataset, replace(known, splits=splits))

    return state


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated images under the layout of CamVid, 8 to train on and 5 to score; not to be changed."""
    return draw_images(tmp_path_factory.mktemp("data") / "camvid", test=5)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Mapping[str, Path]:
    """Specs of a base run, the same with PNE, and another seed, trained by one command; not to be changed.

    What their trainings saw lies in ``folder``, see `spy_hooks`.
    """
    from pne.train import main

    folder = tmp_path_factory.mktemp("finished")
    runs = {"base": {}, "pne": {"contrast": CONTRAST}, "seed1": {"seed": 1}}
    specs = {
        name: write_run(folder, data, name, iterations=12, change=spied(folder / name), **settings)
        for name, settings in runs.items()
    }
    assert main([str(spec) for spec in specs.values()]) == 0
    return {**specs, "folder": folder}


@pytest.fixture
def copied(finished: Mapping[str, Path], tmp_path: Path) -> Path:
    """The spec of a copy of the finished run with PNE that the test may change."""
    source, results = finished["pne"].parents[2], tmp_path / "results"
    for folder in ("runs", "work"):
        shutil.copytree(source / folder / "pne", results / folder / "pne")
    spec = results / "runs/pne/spec.yaml"
    spec.write_text(spec.read_text().replace(str(source), str(results)))
    return spec
