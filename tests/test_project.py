"""The project's own files agree with each other."""

import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    tomllib = pytest.importorskip("tomli")


def project(repository: Path) -> dict:
    return tomllib.loads((repository / "pyproject.toml").read_text())["project"]


def requirements(repository: Path) -> dict[str, Requirement]:
    """Every package that pyproject.toml asks for, extras included, by name."""
    declared = project(repository)
    lines = [*declared["dependencies"], *(r for extra in declared["optional-dependencies"].values() for r in extra)]
    return {r.name: r for r in map(Requirement, lines) if r.name != "pne"}


def pins(repository: Path) -> dict[str, Version]:
    lines = (repository / "constraints.txt").read_text().splitlines()
    matches = [re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines if line and not line.startswith("#")]
    assert all(matches), "constraints.txt holds exact pins alone"
    return {m[1]: Version(m[2]) for m in matches}


def test_every_requirement_is_pinned_within_its_range(repository):
    pinned = pins(repository)
    for name, requirement in requirements(repository).items():
        assert name in pinned, f"{name} has no pin in constraints.txt"
        assert requirement.specifier.contains(pinned[name]), f"{name}: {pinned[name]} is outside of {requirement}"


def test_every_pin_belongs_to_a_requirement(repository):
    assert sorted(pins(repository)) == sorted(requirements(repository))


def test_the_installed_versions_are_the_pinned_ones(repository):
    optional = {r.name for r in map(Requirement, project(repository)["optional-dependencies"]["tsne"])}
    for name, version in pins(repository).items():
        if name in optional:
            continue
        assert Version(distribution(name).version.split("+")[0]) == version, name


def test_environment_yml_installs_the_same(repository):
    environment = yaml.safe_load((repository / "environment.yml").read_text())
    packages = [p for p in environment["dependencies"] if isinstance(p, str)]
    (pip,) = [p["pip"] for p in environment["dependencies"] if isinstance(p, dict)]
    assert pip == ["-c constraints.txt", "-e .[test]"]
    (python,) = [p.removeprefix("python=") for p in packages if p.startswith("python=")]
    assert SpecifierSet(project(repository)["requires-python"]).contains(python)


def loaded_after(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter holds after ``statement``."""
    code = f"{statement}\nimport sys; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import pne", {"torch", "numpy", "mmengine", "pydantic"}),
        ("import pne.options", {"torch", "numpy", "mmengine", "pydantic"}),
        ("import pne.spec, pne.spec, pne.spec.compose, pne.results", {"torch", "mmseg", "mmcv"}),
        ("import analysis, analysis.tables, analysis.plan, analysis.status", {"torch", "mmseg", "mmcv"}),
        ("import pne.losses", {"mmengine", "mmcv", "mmseg", "pydantic"}),
    ],
)
def test_imports_load_nothing_heavy(statement, absent):
    assert not loaded_after(statement) & absent


def test_version_stands_in_changelog_and_citation(repository):
    version = re.search(r'__version__ = "(.+)"', (repository / "pne/__init__.py").read_text())[1]
    assert f"## {version}" in (repository / "CHANGELOG.md").read_text()
    assert yaml.safe_load((repository / "CITATION.cff").read_text())["version"] == version


def test_readme_quotes_the_example_and_its_files_exist(repository):
    readme = (repository / "README.md").read_text()
    example = (repository / "examples/deeplabv3_contrast.py").read_text()
    assert f"```python\n{example}```" in readme
    assert "@@" not in readme
    for target in re.findall(r"\]\(([^)#]+)\)", readme):
        assert target.startswith("http") or (repository / target).exists(), target
