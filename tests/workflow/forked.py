"""What a process forked for one call of Snakemake does. It imports nothing of the project: a checkout has its own."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def snakemake(folder: Path, arguments: Sequence[str], answer: Path) -> None:
    """Call Snakemake in a folder; what it prints goes to a file."""
    from snakemake.cli import main

    for name in [name for name in sys.modules if name.partition(".")[0] in ("pne", "analysis", "workflows")]:
        del sys.modules[name]  # of another test in the same server
    os.chdir(folder)
    descriptor = os.open(answer, os.O_CREAT | os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    main(list(arguments))
