"""Where a result comes from: code, versions, device, data, times. Imports no torch."""

import hashlib
import io
import platform
import socket
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from pne.console import utc_now
from pne.results import Provenance

if TYPE_CHECKING:
    import torch

    from pne.engine.processes import Processes

PACKAGE = Path(__file__).resolve().parents[1]
TRAINING_CODE = ("losses", "heads", "datasets", "engine", "train.py", "options.py", "spec/compose.py")

_LAYOUT = (tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)
_MARKS = {tokenize.NEWLINE: "<end>", tokenize.INDENT: "<in>", tokenize.DEDENT: "<out>"}


@dataclass(frozen=True)
class Code:
    """The code of a process.

    Attributes
    ----------
    sha256 : str
        Of the training-relevant code, see `code_sha256`.
    git_commit : str or None
        Commit of the checkout, None outside of git.
    git_dirty : bool or None
        Whether tracked files differed from the commit.
    """

    sha256: str
    git_commit: str | None
    git_dirty: bool | None


@lru_cache
def running_code() -> Code:
    """Return the code of this process as it was when first asked for.

    Commands ask at their start: files that change while a training runs are not what trains.
    """
    return Code(code_sha256(), *git_state())


@lru_cache
def code_sha256(package: Path = PACKAGE) -> str:
    """Hash the code that can change what a training gives.

    Parameters
    ----------
    package : Path
        Folder of the package. Counted are losses, heads, data sets, engine, the training command, the loss options and
        the config builder.

    Returns
    -------
    str
        64 hex digits, the same under every version of Python. The tokens are hashed: comments, docstrings, blank lines,
        the depth of indentation and breaks of lines inside of brackets do not count.
    """
    digest = hashlib.sha256()
    for entry in TRAINING_CODE:
        path = package / entry
        files = [*path.rglob("*.py"), *path.rglob("*.yaml")] if path.is_dir() else [path] * path.is_file()
        for file in sorted(files):
            digest.update(f"{file.relative_to(package).as_posix()}\n".encode())
            text = file.read_text(encoding="utf-8")
            for line in bare_lines(text) if file.suffix == ".py" else [[repr(yaml.safe_load(text))]]:
                digest.update("\0".join([*line, ""]).encode())
    return digest.hexdigest()


def bare_lines(source: str) -> Iterator[list[str]]:
    """Yield the tokens of each logical line; those of strings alone, such as docstrings, are left out."""
    line: list[str] = []
    only_strings = True
    for kind, text in _tokens(source):
        line.append(text)
        if kind == tokenize.NEWLINE:
            blocks = [token for token in line if token in ("<in>", "<out>")]
            yield blocks if only_strings else line
            line, only_strings = [], True
        elif kind not in (tokenize.INDENT, tokenize.DEDENT):
            only_strings &= kind == tokenize.STRING and not _computes(text)
    yield line


def _computes(string: str) -> bool:
    """Whether a string is an f-string."""
    return "f" in string[: min(string.find(quote) for quote in "'\"" if quote in string)].lower()


def _tokens(source: str) -> Iterator[tuple[int, str]]:
    """Yield kind and text of the tokens that count; an f-string is one token, as it was before Python 3.12."""
    start, end = getattr(tokenize, "FSTRING_START", None), getattr(tokenize, "FSTRING_END", None)
    lines = io.StringIO(source).readlines()
    depth, begin = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if start is not None and token.type == start:
            depth += 1
            begin = token.start if depth == 1 else begin
        elif start is not None and token.type == end:
            depth -= 1
            if depth == 0:
                yield tokenize.STRING, _between(lines, begin, token.end)
        elif depth == 0 and token.type not in _LAYOUT:
            yield token.type, _MARKS.get(token.type, token.string)


def _between(lines: list[str], begin: tuple[int, int], end: tuple[int, int]) -> str:
    (first, column), (last, stop) = begin, end
    if first == last:
        return lines[first - 1][column:stop]
    return "".join([lines[first - 1][column:], *lines[first : last - 1], lines[last - 1][:stop]])


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
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"cpu: {model}"


def describe(
    processes: "Processes", *, seed: int, dataset_fingerprint: str, started: str, code: Code, micro_batch: int = 1
) -> Provenance:
    """Collect the provenance of a result that is complete now."""
    return Provenance(
        git_commit=code.git_commit,
        git_dirty=code.git_dirty,
        code_sha256=code.sha256,
        versions=versions(),
        device=device_name(processes.device),
        hostname=socket.gethostname(),
        world_size=processes.world_size,
        micro_batch=micro_batch,
        dataset_fingerprint=dataset_fingerprint,
        seed=seed,
        started=started,
        ended=utc_now(),
    )
