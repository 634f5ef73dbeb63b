"""Evaluate the final weights of trained runs: ``python -m pne.evaluate --evaluation multi_scale_flip SPEC [SPEC ...]``.

Never trains. Exit status as of ``python -m pne.train``.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from pne.engine.command import carry_out, spec_parser
from pne.errors import reports_user_errors
from pne.results import EVALUATIONS


def parser() -> ArgumentParser:
    """Command line of ``python -m pne.evaluate``."""
    command = spec_parser("pne.evaluate", __doc__)
    command.add_argument("--evaluation", choices=EVALUATIONS, required=True, help="how to predict")
    command.add_argument("--bfloat16", action="store_true", help="run the network in bfloat16; faster on GPUs")
    command.add_argument("--again", action="store_true", help="evaluate even where a result of these weights is there")
    return command


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate each run; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(argv)

    def evaluate(path, processes, request):
        from pne.engine.evaluation import evaluate_spec

        evaluate_spec(path, args.evaluation, processes, request, bfloat16=args.bfloat16, again=args.again)

    return carry_out("pne.evaluate", argv, args.specs, evaluate, args.keep_going)


if __name__ == "__main__":
    sys.exit(main())
