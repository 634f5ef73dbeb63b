"""Train runs: ``python -m pne.train SPEC [SPEC ...]``, each from its ``spec.yaml`` to its published results.

Exit status: 0 all finished; 1 a run failed; 2 an error the user can mend; 75 SIGTERM came and a checkpoint is written
(try again later); 130 Ctrl-C. A run on several GPUs starts its processes by itself; elsewhere
``torchrun --standalone --nproc_per_node N -m pne.train SPEC`` does.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from pne.console import positive, say
from pne.engine.command import carry_out, is_of, spec_parser
from pne.engine.side_by_side import act_side_by_side
from pne.errors import reports_user_errors
from pne.results import finished_result
from pne.spec import read_spec


def parser() -> ArgumentParser:
    """Command line of ``python -m pne.train``."""
    command = spec_parser("pne.train", __doc__)
    command.add_argument("--retrain", action="store_true", help="train finished runs again; results stay until then")
    command.add_argument(
        "--cores",
        type=positive,
        metavar="N",
        help="on the CPU: train side by side on N cores, one process a run that writes to `log` in its folder",
    )
    command.add_argument("--micro-batch", type=positive, metavar="N", help="most images per pass (default: the spec's)")
    return command


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Train each run; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(argv)

    def train(path, processes, request):
        from pne.engine.session import Settings, train_spec

        train_spec(path, Settings(args.retrain, args.micro_batch), processes, request)

    # Said without torch, whose import takes seconds.
    specs = [path for path in args.specs if args.retrain or not is_finished(path)]
    if specs and args.cores:
        return act_side_by_side(specs, train, args.cores, args.keep_going)
    return carry_out("pne.train", argv, specs, train, args.keep_going) if specs else 0


def is_finished(path: Path) -> bool:
    """Whether a run is trained and evaluated as its spec asks for; if so, that is said."""
    run = read_spec(path)
    is_of(run, path)
    finished = all(finished_result(run, name) for name in ("train", "single_scale", *run.evaluations))
    if finished:
        say(f"{run.run}: finished already")
    return finished


if __name__ == "__main__":
    sys.exit(main())
