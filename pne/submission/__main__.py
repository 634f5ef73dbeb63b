"""Pack a run's predictions of the Cityscapes test images for the server: ``python -m pne.submission SPEC [SPEC ...]``.

Writes ``results/<track>/submissions/<run>.zip``, with other than the default settings ``<run>.<settings>.zip``. Exit
status as of ``python -m pne.train``; an interrupted call goes on with the images that are missing.
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
    """Command line of ``python -m pne.submission``."""
    command = argparse.ArgumentParser(prog="python -m pne.submission", description=__doc__.split("\n\n")[0])
    command.add_argument("specs", nargs="+", type=Path, metavar="SPEC", help="spec.yaml of a trained run")
    command.add_argument(
        "--evaluation",
        choices=EVALUATIONS,
        default="multi_scale_flip",
        help="how to predict (default: %(default)s, as the paper's scores on the test split)",
    )
    command.add_argument("--bfloat16", action="store_true", help="run the network in bfloat16; faster on GPUs")
    command.add_argument("--subset", action="store_true", help="take a part of the test split; the server will not")
    command.add_argument("--keep-going", action="store_true", help="go on with the next spec after a failure")
    return command


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Write the archive of each run; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)

    def submit(path: Path, processes: "Processes", request: StopRequest) -> None:
        from pne.submission.predict import Settings, submit_spec

        settings = Settings(arguments.evaluation, arguments.bfloat16, arguments.subset)
        submit_spec(path, settings, processes, request)

    return carry_out("pne.submission", argv, arguments.specs, submit, arguments.keep_going)


if __name__ == "__main__":
    sys.exit(main())
