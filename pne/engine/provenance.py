"""Where a result comes from: code, versions, device, data, times. Imports no torch."""

import ast
import hashlib
import json
import platform
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pne.console import utc_now
from pne.errors import UserError
from pne.options import resolve_options
from pne.results import Provenance
from pne.spec.own_loss import source_of

if TYPE_CHECKING:
    import torch

    from pne.engine.processes import Processes
    from pne.spec import Run

PACKAGE = Path(__file__).resolve().parents[1]
ENTRIES = ("train.py", "evaluate.py")
EXCLUDED = {
    "train.py": "a command line: its help is words, and its settings stand in the provenance",
    "evaluate.py": "a command line",
    "console.py": "words for people",
    "errors.py": "words for people",
    "files.py": "how a file is written whole",
    "results.py": "the form of result files: what stands in them is computed elsewhere",
    "options.py": "the options of the run's loss count by their values",
    "spec/": "what it composes is hashed into the run's id; `PLACEMENT` alone sets numbers afterwards",
    "losses/__init__.py": "a list of the losses: that of the run counts, with all that it imports",
    "datasets/files.py": "examines data, whose fingerprint stands in the provenance",
    "datasets/fingerprint.py": "names data",
    "datasets/synthetic_street/": "draws data",
    "engine/command.py": "where and when a run works",
    "engine/locks.py": "where and when a run works",
    "engine/publication.py": "where its files go",
    "engine/provenance.py": "what is said about it",
    "engine/trial.py": "builds the parts of a config beforehand to name mistakes, and throws them away",
}
"""Modules of the package that training and evaluation import and that cannot change a number, with the reason."""
PLACEMENT = (("spec/compose.py", "place"), ("spec/identity.py", "NUMERICS"))
"""What sets numbers after the id is made."""
WORDS = ("say", "warn", "print")


@dataclass(frozen=True)
class Code:
    """The code of a process.

    Attributes
    ----------
    sha256 : str
        Of the code that counts for a run, see `code_sha256`.
    git_commit : str or None
        Commit of the checkout, None outside of git.
    git_dirty : bool or None
        Whether tracked files differed from the commit.
    """

    sha256: str
    git_commit: str | None
    git_dirty: bool | None


def running_code(run: "Run") -> Code:
    """Return the code of this process that counts for a run, as it was when first asked for.

    Commands ask at their start: files that change while a training runs are not what trains.
    """
    return Code(code_sha256(run), *git_state())


def code_sha256(run: "Run", package: Path = PACKAGE) -> str:
    """Hash the code that can change what training and evaluating a run give.

    That are the modules of the package that `ENTRIES` import, directly or not, but those that are `EXCLUDED`; the
    module of the run's loss, those of classes that its config names by path, and what they import; and the values of
    all options of that loss.

    Parameters
    ----------
    run : Run
    package : Path
        Folder of the package.

    Returns
    -------
    str
        64 hex digits, the same under every version of Python. The top-level statements are hashed, in whatever module
        they stand, without comments, docstrings, layout, imports from the package, and words: what is printed and what
        errors say.
    """
    contrast = run.contrast or {"loss": None}
    options = json.dumps(contrast.get("options") or {}, sort_keys=True)
    return _hash(package, contrast["loss"], options, tuple(run.modules))


@lru_cache
def _hash(package: Path, loss: str | None, options: str, modules: tuple[str, ...]) -> str:
    statements, seen = {options}, set()
    waiting = [package / entry for entry in ENTRIES] + [path for name in modules if (path := _file(name, package))]
    if loss is not None and ":" in loss:
        if (source := source_of(loss.partition(":")[0])) is None:
            raise UserError(f"{loss}: no such module on this machine; put its folder on PYTHONPATH")
        waiting.append(source)
    elif loss is not None:
        waiting.append(read_module(package / "losses/__init__.py", package).origins[loss])
        statements = {json.dumps(resolve_options(loss, json.loads(options)), sort_keys=True)}
    while waiting:
        path = waiting.pop()
        name = path.relative_to(package).as_posix() if path.is_relative_to(package) else ""
        counts = not any(name == part or (part.endswith("/") and name.startswith(part)) for part in EXCLUDED)
        if path in seen or not (counts or name in ENTRIES):
            continue
        seen.add(path)
        module = read_module(path, package)
        waiting += module.imports
        statements |= set(module.statements.values()) if counts else set()
    statements |= {read_module(package / file, package).statements[name] for file, name in PLACEMENT}
    return hashlib.sha256("\n".join(sorted(statements)).encode()).hexdigest()


@dataclass(frozen=True)
class Module:
    """A source file.

    Attributes
    ----------
    statements : dict of str to str
        Top-level statements as they count, by the name that they define, else by their number.
    imports : tuple of Path
        Files of the package that it imports.
    origins : dict of str to Path
        Names that it takes from modules of the package.
    """

    statements: dict[str, str]
    imports: tuple[Path, ...]
    origins: dict[str, Path]


@cache
def read_module(path: Path, package: Path) -> Module:
    """Read a source file once; data beside it, in a file ``.yaml`` of its name, count as one more statement."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    statements = {}
    for number, node in enumerate(tree.body):
        if facts := _facts(node):
            target = node.targets[0] if isinstance(node, ast.Assign) else node
            statements[getattr(target, "name", None) or getattr(target, "id", str(number))] = repr(facts)
    imports, origins = [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += filter(None, (_file(alias.name, package) for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and (source := _file(node.module or "", package)):
            parts = {alias.name: _file(f"{node.module}.{alias.name}", package) or source for alias in node.names}
            imports += [source, *parts.values()]
            origins |= parts
    if (data := path.with_suffix(".yaml")).is_file():
        statements[data.name] = repr(yaml.safe_load(data.read_text(encoding="utf-8")))
    return Module(statements, tuple(imports), origins)


def _file(module: str, package: Path) -> Path | None:
    first, *parts = module.split(".")
    place = package.joinpath(*parts)
    candidates = (place.with_suffix(".py"), place / "__init__.py") if parts else (place / "__init__.py",)
    return next((path for path in candidates if first == package.name and path.is_file()), None)


def _facts(value: Any) -> Any:
    """Reduce a part of a syntax tree to what computes, as tuples and texts; None where nothing does."""
    match value:
        case list():
            return tuple(filter(None, map(_facts, value)))
        case ast.Import(names=[ast.alias(name=name), *_]) | ast.ImportFrom(module=str(name)) if _is_ours(name):
            return None
        case ast.Expr(value=ast.Constant(value=str())):
            return None
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in WORDS:
            return None
        case ast.Raise(exc=ast.Call(func=error)):
            return ("Raise", _facts(error))
        case ast.AST():
            parts = ((name, part) for name, part in ast.iter_fields(value) if name not in ("ctx", "kind"))
            return (type(value).__name__, *((name, _facts(part)) for name, part in parts if part not in (None, [])))
    return repr(value)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == PACKAGE.name


@lru_cache
def git_state(folder: Path = PACKAGE) -> tuple[str | None, bool | None]:
    """Commit of the checkout and whether tracked files differ from it; (None, None) outside of git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


PACKAGES = {
    "torch": ("torch",),
    "mmengine": ("onedl-mmengine", "mmengine"),
    "mmcv": ("onedl-mmcv", "mmcv", "mmcv-lite"),
    "mmseg": ("onedl-mmsegmentation", "mmsegmentation"),
    "numpy": ("numpy",),
}


@lru_cache
def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that compute."""
    found = {"python": platform.python_version()}
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            try:
                found[name] = version(distribution)
                break
            except PackageNotFoundError:
                continue
    return found


def device_name(device: "torch.device") -> str:
    """Name of the hardware: ``NVIDIA H100 80GB HBM3`` or ``cpu: <model of the processor>``."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    return f"cpu: {cpu_name()}"


@lru_cache
def cpu_name() -> str:
    """Model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def describe(
    run: "Run",
    config: Mapping[str, Any],
    processes: "Processes",
    *,
    dataset_fingerprint: str,
    started: str,
    code: Code,
    micro_batch: int = 1,
) -> Provenance:
    """Collect the provenance of a result of a run that is complete now; ``config`` as `runner.prepare` returned it."""
    return Provenance(
        git_commit=code.git_commit,
        git_dirty=code.git_dirty,
        code_sha256=code.sha256,
        versions=versions(),
        device=device_name(processes.device),
        hostname=socket.gethostname(),
        world_size=processes.world_size,
        micro_batch=micro_batch,
        cpu=cpu_name(),
        threads=run.runtime.threads,
        numerics=dict(config["numerics"]),
        dataset_fingerprint=dataset_fingerprint,
        seed=run.seed,
        started=started,
        ended=utc_now(),
    )
