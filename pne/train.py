"""Train runs: ``python -m pne.train SPEC [SPEC ...]``, each from its ``spec.yaml`` to its published results.

Exit status: 0 all finished; 1 a run failed; 2 an error the user can mend; 75 SIGTERM came and a checkpoint is written
(try again later); 130 Ctrl-C. A run on several GPUs starts its processes by itself; elsewhere
``torchrun --standalone --nproc_per_node N -m pne.train SPEC`` does.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pne.console import positive
from pne.engine.command import StopRequest, carry_out
from pne.errors import reports_user_errors

if TYPE_CHECKING:
    from pne.engine.processes import Processes


def parser() -> argparse.ArgumentParser:
    """Command line of ``python -m pne.train``."""
    command = argparse.ArgumentParser(prog="python -m pne.train", description=__doc__.split("\n\n")[0])
    command.add_argument("specs", nargs="+", type=Path, metavar="SPEC", help="spec.yaml of a run")
    command.add_argument("--retrain", action="store_true", help="train finished runs again; results stay until then")
    command.add_argument("--keep-going", action="store_true", help="go on with the next spec after a failure")
    command.add_argument(
        "--micro-batch", type=positive, metavar="N", help="at most N images per pass (default: the spec's)"
    )
    return command


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Train each run; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)

    def train(path: Path, processes: "Processes", request: StopRequest) -> None:
        from pne.engine.session import Settings, train_spec

        train_spec(path, Settings(arguments.retrain, arguments.micro_batch), processes, request)

    return carry_out("pne.train", argv, arguments.specs, train, arguments.keep_going)


if __name__ == "__main__":
    sys.exit(main())
