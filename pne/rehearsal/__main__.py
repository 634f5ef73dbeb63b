"""The process of one rehearsal: ``python -m pne.rehearsal SPEC``; started by ``python -m pne.rehearse``.

A process of its own for each, so that one that runs out of memory, or breaks the device, leaves the others alone.
Exit status as of ``python -m pne.train``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pne.engine.command import carry_out
from pne.engine.interruption import StopRequest
from pne.errors import reports_user_errors

if TYPE_CHECKING:
    from pne.engine.processes import Processes


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Rehearse; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    command = argparse.ArgumentParser(prog="python -m pne.rehearsal", description=__doc__.split("\n\n")[0])
    command.add_argument("spec", type=Path, metavar="SPEC", help="spec.yaml of a rehearsal")
    arguments = command.parse_args(argv)

    def rehearse(path: Path, processes: "Processes", request: StopRequest) -> None:
        from pne.rehearsal.perform import rehearse_spec

        rehearse_spec(path, processes, request)

    return carry_out("pne.rehearsal", argv, [arguments.spec], rehearse)


if __name__ == "__main__":
    sys.exit(main())
