"""Pack a run's predictions of the Cityscapes test images for the server: ``python -m pne.submission SPEC [SPEC ...]``.

Writes ``results/<track>/submissions/<run>.zip``, with other than the default settings ``<run>.<settings>.zip``. Exit
status as of ``python -m pne.train``; an interrupted call goes on with the images that are missing.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from pne.engine.command import carry_out, spec_parser
from pne.errors import reports_user_errors
from pne.results import EVALUATIONS


def parser() -> ArgumentParser:
    """Command line of ``python -m pne.submission``."""
    command = spec_parser("pne.submission", __doc__)
    command.add_argument(
        "--evaluation",
        choices=EVALUATIONS,
        default="multi_scale_flip",
        help="how to predict (default: %(default)s, as the paper's scores on the test split)",
    )
    command.add_argument("--bfloat16", action="store_true", help="run the network in bfloat16; faster on GPUs")
    command.add_argument("--subset", action="store_true", help="take a part of the test split; the server will not")
    return command


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Write the archive of each run; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(argv)

    def submit(path, processes, request):
        from pne.submission.predict import Settings, submit_spec

        submit_spec(path, Settings(args.evaluation, args.bfloat16, args.subset), processes, request)

    return carry_out("pne.submission", argv, args.specs, submit, args.keep_going)


if __name__ == "__main__":
    sys.exit(main())
