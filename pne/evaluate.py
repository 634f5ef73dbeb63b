"""Evaluate the final weights of trained runs: ``python -m pne.evaluate --evaluation multi_scale_flip SPEC [SPEC ...]``.

Never trains. Exit status as of ``python -m pne.train``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pne.engine.command import StopRequest, carry_out
from pne.errors import reports_user_errors
from pne.results import EVALUATIONS

if TYPE_CHECKING:
    from pne.engine.processes import Processes


def parser() -> argparse.ArgumentParser:
    """Command line of ``python -m pne.evaluate``."""
    command = argparse.ArgumentParser(prog="python -m pne.evaluate", description=__doc__.split("\n\n")[0])
    command.add_argument("specs", nargs="+", type=Path, metavar="SPEC", help="spec.yaml of a trained run")
    command.add_argument("--evaluation", choices=EVALUATIONS, required=True, help="how to predict")
    command.add_argument("--bfloat16", action="store_true", help="run the network in bfloat16; faster on GPUs")
    command.add_argument("--again", action="store_true", help="evaluate even where a result of these weights is there")
    command.add_argument("--keep-going", action="store_true", help="go on with the next spec after a failure")
    return command


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate each run; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)

    def evaluate(path: Path, processes: "Processes", request: StopRequest) -> None:
        from pne.engine.evaluation import evaluate_spec

        evaluate_spec(
            path, arguments.evaluation, processes, request, bfloat16=arguments.bfloat16, again=arguments.again
        )

    return carry_out("pne.evaluate", argv, arguments.specs, evaluate, arguments.keep_going)


if __name__ == "__main__":
    sys.exit(main())
