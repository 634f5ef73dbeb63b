"""A copy of the project in a folder of its own, in which a test may edit, train and call Snakemake."""

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import forked

from pne.spec import load_track

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "workflows", "profiles", "experiments", "analysis", "pne")
MESSAGE = re.compile(r"^Job \d+: (.+)$", re.MULTILINE)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["snakemake.cli", "snakemake.report", "mmengine.config", "pydantic", "pandas"])
COUNT = re.compile(r"^(\w+) +(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Plan:
    """What a dry run says it would do."""

    output: str

    @property
    def jobs(self) -> Counter[str]:
        """Number of jobs by rule; empty when nothing is to be done."""
        counts = Counter({name: int(count) for name, count in COUNT.findall(self.output)})
        del counts["total"]
        return counts

    def of(self, verb: str) -> set[str]:
        """Return what the jobs of a kind are about, such as the ids of the runs to ``train``."""
        pattern = {
            "train": r"train (\S+)",
            "retrain": r"train (\S+) anew",
            "evaluate": r"evaluate (\S+): .*",
            "print": r"print table (\S+)",
            "draw": r"draw figure (\S+)",
        }[verb]
        return {found[1] for line in MESSAGE.findall(self.output) if (found := re.fullmatch(pattern, line))}

    @property
    def empty(self) -> bool:
        """Whether nothing would be done."""
        return "Nothing to be done" in self.output


class Checkout:
    """A copy of the project.

    Parameters
    ----------
    folder : Path
        Where it lies; made if it is absent, else taken as it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.exists():
            folder.mkdir(parents=True)
            for part in PARTS:
                source = REPOSITORY / part
                if source.is_symlink():
                    (folder / part).symlink_to(source.readlink())
                elif source.is_dir():
                    shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy2(source, folder / part)

    def copy(self, folder: Path) -> "Checkout":
        """Copy it as it stands, results, times of files and Snakemake's records included."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Checkout(folder)

    def __truediv__(self, path: str) -> Path:
        return self.folder / path

    def run(self, *command: str, accept: tuple[int, ...] = (0,), **environment: str) -> str:
        """Run a command here and return what it printed, both streams together."""
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        variables.pop("PYTHONPATH", None)
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode in accept, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def python(self, *arguments: str, **options: object) -> str:
        """Run the interpreter of the tests here."""
        return self.run(sys.executable, *arguments, **options)

    def snakemake(self, *arguments: str, **options: object) -> str:
        """Run Snakemake here."""
        return self.python("-m", "snakemake", *arguments, **options)

    def ask(self, *arguments: str, accept: int = 0) -> str:
        """Call Snakemake here for an answer that takes no job, in a process forked from one that has imported it."""
        answer = self.folder.with_name(f"{uuid.uuid4().hex}.txt")
        process = FORKS.Process(target=forked.snakemake, args=(self.folder, arguments, answer))
        process.start()
        process.join()
        output = answer.read_text()
        assert process.exitcode == accept, f"snakemake {arguments} ended with {process.exitcode}:\n{output}"
        return output

    def plan(self, *arguments: str) -> Plan:
        """Ask Snakemake what it would do."""
        return Plan(self.ask("--dry-run", *arguments))

    def runs(self, track: str = "quick") -> set[str]:
        """Ids of the runs of a track as it is declared here now."""
        return set(load_track(track, experiments=self.folder / "experiments").runs)

    def replace(self, path: str, old: str, new: str) -> None:
        """Edit a file; the text must be there exactly once."""
        text = (self / path).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{path} holds {old!r} {text.count(old)} times"
        (self / path).write_text(text.replace(old, new), encoding="utf-8")
