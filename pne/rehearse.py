"""Rehearse the runs of a track: ``python -m pne.rehearse --track paper --data-root DIR``.

Every declared run trains for a few iterations on the machine at hand, with its real config, loader and batch, and
scores two test images; runs that differ in the contrast's weight or temperature, or in the seed, are rehearsed once.
Each leaves its seconds per iteration and peak memory in ``results/<track>/rehearsals/<run>.json``, which
``python -m analysis.plan`` reads. Results and checkpoints of the runs themselves are never touched.

Exit status: 0 all done; 1 a rehearsal failed (the others are done); 2 an error that concerns all; 75, 130
on signals.
"""

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from pne.declaration.reading import suggest
from pne.declaration.resolved import ResolvedTrack
from pne.engine.code import code_sha256
from pne.engine.command import EXIT_FAILED
from pne.engine.console import duration, say
from pne.engine.interruption import EXIT_STATUS, StopRequest, listening
from pne.errors import UserError, reports_user_errors
from pne.rehearsal.children import reason, run_child
from pne.rehearsal.groups import Group, group_runs
from pne.rehearsal.record import RECORD, REQUEST, Rehearsal, Request, read_content, record_path, write_content
from pne.rehearsal.reduction import rehearsal_of
from pne.rehearsal.summary import summarise
from pne.resolve import load_track
from pne.spec import write_spec


def parser() -> argparse.ArgumentParser:
    """Return the command line of ``python -m pne.rehearse``."""
    command = argparse.ArgumentParser(
        prog="python -m pne.rehearse",
        description=__doc__.split("\n\n")[1],
        epilog="A rehearsal of the same code and settings that was made on this machine before is not repeated.",
    )
    command.add_argument("--track", default="paper", help="default: %(default)s")
    command.add_argument("--tables", nargs="+", metavar="TABLE", help="those that stand for runs of these tables")
    command.add_argument("--run", nargs="+", metavar="ID", help="those that stand for these runs")
    command.add_argument("--seeds", nargs="+", type=int, help="instead of the track's")
    command.add_argument("--iterations", type=_positive, default=20, metavar="N", help="default: %(default)s")
    command.add_argument("--images", type=_positive, default=2, metavar="N", help="test images (default: %(default)s)")
    command.add_argument("--crop", type=_positive, metavar="PIXELS", help="shorter side of the crop; scales all sizes")
    command.add_argument("--batch-size", type=_positive, metavar="N", help="images per iteration")
    command.add_argument("--micro-batch", type=_positive, metavar="N", help="at most N images per forward pass")
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), help="instead of the track's")
    for name, what in (("gpus", "of each run"), ("workers", "loading processes"), ("threads", "of each process")):
        command.add_argument(f"--{name}", type=int, metavar="N", help=f"{what}, instead of the track's")
    command.add_argument("--declared-weights", action="store_true", help="start from the runs' own initial weights")
    command.add_argument("--again", action="store_true", help="repeat rehearsals that are there")
    command.add_argument("--data-root", type=Path)
    command.add_argument("--weights-dir", type=Path)
    command.add_argument("--results", type=Path, default=Path("results"))
    command.add_argument("--experiments", type=Path, default=Path("experiments"), help="folder of the declarations")
    return command


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text}")
    return number


def choose(
    groups: Sequence[Group], track: ResolvedTrack, runs: Sequence[str] | None, tables: Sequence[str] | None
) -> list[Group]:
    """Return the groups that stand for some of the given runs or the runs of the given tables, all of them for None.

    Raises
    ------
    UserError
        If the track has no such run or table.
    """
    if runs is None and tables is None:
        return list(groups)
    wanted = set(runs or ())
    for run in wanted:
        track.config(run)  # names the nearest run where there is none
    for name in tables or ():
        if name not in track.tables:
            raise UserError(f"track {track.name}: no table {name!r}; {suggest(name, track.tables)}")
        wanted |= {run for row in track.tables[name].rows.values() for run in row.runs.values()}
    return [group for group in groups if wanted & set(group.stands_for)]


class Rehearser:
    """Rehearses groups of runs of one track, one after the other.

    Parameters
    ----------
    track : ResolvedTrack
    args : Namespace
        From `parser`.
    """

    def __init__(self, track: ResolvedTrack, args: argparse.Namespace) -> None:
        self.track, self.args = track, args
        self.reduced = args.crop is not None or args.batch_size is not None
        self.folder = args.results / track.name / "rehearsals"
        self.records: list[Rehearsal] = []
        self.failures: dict[str, str] = {}

    def rehearse(self, group: Group, request: StopRequest) -> str:
        """Rehearse one group and say how it went; a failure is noted, not raised."""
        run = group.run.run
        path = record_path(self.args.results, self.track.name, run, self.reduced)
        self.folder.mkdir(parents=True, exist_ok=True)
        # A folder of its own, so that several rehearsals may go on at a time.
        with TemporaryDirectory(prefix=".work-", dir=self.folder) as work:
            spec = self._write(group, work)
            found = None if self.args.again else self._found(spec, path)
            if found is not None:
                self.records.append(found)
                return "rehearsed already"
            began = time.perf_counter()
            log = self.folder / "logs" / f"{run}.log"
            status = run_child(spec, log, request)
            if request.signum:
                return "interrupted"
            if status:
                self.failures[run] = f"{reason(status, log)} ({log})"
                return f"FAILED: {self.failures[run]}"
            record = read_content(spec.parent / RECORD, Rehearsal)
        write_content(path, record)
        self.records.append(record)
        memory = record.highest_memory_mib / 1024
        return f"{record.time_s:.3g} s/iter, {memory:.2f} GiB, {duration(time.perf_counter() - began)}"

    def _write(self, group: Group, work: str) -> Path:
        args = self.args
        run, config = rehearsal_of(
            group.run,
            self.track.config(group.run.run).to_dict(),
            results=work,
            iterations=args.iterations,
            evaluations=group.evaluations,
            crop=args.crop,
            batch_size=args.batch_size,
            random_weights=not args.declared_weights,
        )
        spec = write_spec(run, config)
        wanted = Request(
            runs=list(group.stands_for),
            config_sha256=run.config_sha256,
            evaluations=list(group.evaluations),
            images=args.images,
            device=run.runtime.device,
            gpus=run.runtime.gpus,
            workers=run.runtime.workers,
            threads=run.runtime.threads,
            micro_batch=run.runtime.micro_batch,
            initial_weights="declared" if args.declared_weights else "random",
            reduced=self.reduced,
        )
        write_content(spec.parent / REQUEST, wanted)
        return spec

    def _found(self, spec: Path, path: Path) -> Rehearsal | None:
        """Return the record that is there if it answers the same request with the code of today, here."""
        wanted = read_content(spec.parent / REQUEST, Request)
        try:
            found = read_content(path, Rehearsal)
        except UserError:
            return None
        here = (found.provenance.hostname, found.provenance.code_sha256) == (socket.gethostname(), code_sha256())
        return found if here and found.request == wanted else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Rehearse, and print what was found; return the exit status."""
    args = parser().parse_args(argv)
    runtime = {key: getattr(args, key) for key in ("device", "gpus", "micro_batch", "workers", "threads")}
    track = load_track(
        args.track,
        experiments=args.experiments,
        results=args.results,
        data_root=args.data_root,
        weights_dir=args.weights_dir,
        seeds=args.seeds,
        runtime={key: value for key, value in runtime.items() if value is not None},
    )
    groups = choose(group_runs(track), track, args.run, args.tables)
    rehearser = Rehearser(track, args)
    say(f"{_count(len(groups), 'rehearsal')} for {_count(sum(len(group.stands_for) for group in groups), 'run')}")
    with listening() as request:
        for number, group in enumerate(groups, 1):
            say(f"{number}/{len(groups)} {group.run.run} stands for {_count(len(group.stands_for), 'run')}")
            say(f"{number}/{len(groups)} {group.run.run}: {rehearser.rehearse(group, request)}")
            if request.signum:
                return EXIT_STATUS[request.signum]
    print(f"\n{summarise(rehearser.records, track.runs, rehearser.failures)}", flush=True)
    return EXIT_FAILED if rehearser.failures else 0


if __name__ == "__main__":
    sys.exit(main())
