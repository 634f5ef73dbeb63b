"""The project's own files agree with each other."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from graphlib import TopologicalSorter
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
    pinned, required = pins(repository), requirements(repository)
    assert sorted(pinned) == sorted(required)
    for name, requirement in required.items():
        assert requirement.specifier.contains(pinned[name]), f"{name}: {pinned[name]} is outside of {requirement}"


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


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import pne", {"torch", "numpy", "mmengine", "pydantic"}),
        ("import pne.options", {"torch", "numpy", "mmengine", "pydantic"}),
        ("import pne.spec as s; t = s.load_track('paper'); t.config(next(iter(t.runs)))", {"torch", "mmseg", "cv2"}),
        ("import pne.results, pne.datasets.layouts", {"torch", "mmseg", "mmcv", "cv2"}),
        ("from analysis import claims, help, plan, report, runs, status", {"torch", "mmseg", "mmcv"}),
        ("import analysis.figures.draw, analysis.figures.selection", {"torch", "mmseg", "mmcv"}),
        ("import analysis.claims.__main__, analysis.tables.__main__", {"torch", "mmseg", "mmcv"}),
        ("import analysis.figures, analysis.tables", {"torch", "mmseg", "matplotlib", "pandas", "sklearn"}),
        ("import pne.losses, pne.losses.functional", {"mmengine", "mmcv", "mmseg", "pydantic"}),
        ("import pne.extract.archives, pne.counts", {"torch", "mmseg", "matplotlib"}),
    ],
)
def test_imports_load_nothing_heavy(repository, statement, absent):
    """In a fresh interpreter; the top-level packages that it holds in the end."""
    code = f"{statement}\nimport sys; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, check=True, capture_output=True, text=True)
    assert not set(done.stdout.split()) & absent


# From the lowest to the highest; what stands in no line here belongs to the line of its package.
LAYERS = (
    ("pne", "pne.errors", "pne.files", "pne.console"),
    ("pne.options",),
    ("pne.losses", "pne.counts", "pne.datasets"),
    ("pne.heads", "pne.backbones", "pne.spec"),
    ("pne.results",),
    ("pne.engine",),
    ("pne.extract", "pne.submission", "pne.rehearse", "pne.train", "pne.evaluate", "pne.spec.__main__"),
    ("analysis",),
    ("workflows",),
)
READ_BY_ANALYSIS = {
    *("analysis", "pne.errors", "pne.files", "pne.console", "pne.options", "pne.results", "pne.counts", "pne.spec"),
    *("pne.extract.archives", "pne.rehearse.record", "pne.engine.provenance"),
}


@pytest.fixture(scope="module")
def imports(repository) -> dict[str, set[str]]:
    """What each module imports, inside functions too: a module's name, ours or not."""
    files = [path for package in ("pne", "analysis", "workflows") for path in (repository / package).rglob("*.py")]
    names = {
        ".".join(path.relative_to(repository).with_suffix("").parts).removesuffix(".__init__"): path for path in files
    }

    def imported(path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}:{node.lineno}: import by the full name"
                members = (f"{node.module}.{alias.name}" for alias in node.names)
                yield from (member if member in names else node.module for member in members)

    return {name: set(imported(path)) - {name} for name, path in names.items()}


def within(module: str, packages: set[str]) -> str | None:
    """The longest of ``packages`` that a module is, or lies in."""
    parts = module.split(".")
    return next((found for end in range(len(parts), 0, -1) if (found := ".".join(parts[:end])) in packages), None)


def test_no_circle_of_imports(imports):
    TopologicalSorter(imports).prepare()  # a CycleError names the circle


def test_imports_lead_to_lower_layers(imports):
    layers = {name: number for number, names in enumerate(LAYERS) for name in names}
    packages = set(layers) - {"pne"}  # a new module below pne needs a place
    number = {name: layers[within(name, packages) or name] for name in imports}
    climbs = {
        (name, other) for name in imports for other in imports[name] & set(number) if number[other] > number[name]
    }
    assert not climbs


def test_losses_need_torch_alone(imports):
    for name in ("pne.options", *(name for name in imports if within(name, {"pne.losses"}))):
        assert {other.partition(".")[0] for other in imports[name]} <= {"pne", "torch", *sys.stdlib_module_names}, name


def test_analysis_reads_files_and_never_needs_torch(imports):
    for name in (name for name in imports if within(name, {"analysis"})):
        assert not {other.partition(".")[0] for other in imports[name]} & {"torch", "mmseg", "mmcv", "workflows"}, name
        ours = {other for other in imports[name] if within(other, {"pne"})}
        assert not {other for other in ours if not within(other, READ_BY_ANALYSIS)}, name


def test_the_wheel_holds_pne_alone_and_an_editable_install_finds_the_checkout(repository, tmp_path):
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("pne", "analysis", "workflows"):
        shutil.copytree(repository / name, checkout / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / name, checkout)
    code = "from setuptools import build_meta as b; b.build_wheel('../wheel'); b.build_editable('../editable')"
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,), (editable,) = ((tmp_path / kind).glob("*.whl") for kind in ("wheel", "editable"))
    files = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert files == {str(path.relative_to(checkout)) for path in (checkout / "pne").rglob("*") if path.is_file()}
    (path,) = (name for name in zipfile.ZipFile(editable).namelist() if name.endswith(".pth"))
    assert zipfile.ZipFile(editable).read(path).decode().strip() == str(checkout)


@pytest.mark.parametrize("home", [{}, {"HOME": "/nowhere"}])
def test_make_gives_a_nameless_user_a_name_and_a_home_that_can_be_written(repository, home):
    show = ["make", "--eval", 'show: ; @echo "$$HOME" "$$USER"', "show"]
    done = subprocess.run(
        show, cwd=repository, env={"PATH": os.environ["PATH"], **home}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(repository / ".snakemake/home"), str(os.getuid())]


def test_version_stands_in_changelog_and_citation(repository):
    version = re.search(r'__version__ = "(.+)"', (repository / "pne/__init__.py").read_text())[1]
    assert f"## {version}" in (repository / "CHANGELOG.md").read_text()
    assert yaml.safe_load((repository / "CITATION.cff").read_text())["version"] == version


def test_readme_quotes_the_example_and_links_lead_somewhere(repository):
    readme = (repository / "README.md").read_text()
    example = (repository / "examples/deeplabv3_contrast.py").read_text()
    assert f"```python\n{example}```" in readme
    assert "@@" not in readme
    for page in (repository / "README.md", *(repository / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page}: {target}"
