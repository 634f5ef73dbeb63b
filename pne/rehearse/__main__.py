"""Rehearse the runs of a track: ``python -m pne.rehearse --track paper --data-root DIR``.

Every declared run trains for a few iterations on the machine at hand, with its real config, loader and batch, and
scores the largest test images; runs that differ in the contrast's weight or temperature, or in the seed, are rehearsed
once. A rehearsal is ``python -m pne.train`` on a shortened spec in a folder of its own. Each leaves its seconds per
iteration and peak memory in ``results/<track>/rehearsals/<run>.json``, which ``python -m analysis.plan`` reads. Results
and checkpoints of the runs themselves are never touched.

Exit status: 0 all done; 1 a rehearsal failed (the others are done); 2 an error that concerns all; 75, 130
on signals.
"""

import argparse
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pne.console import duration, positive, say
from pne.engine.command import EXIT_FAILED, EXIT_STATUS, StopRequest, listening, run_process
from pne.engine.provenance import code_sha256
from pne.errors import UserError, reports_user_errors
from pne.rehearse.record import (
    Group,
    Rehearsal,
    Request,
    contrasts,
    group_runs,
    read_rehearsal,
    record_path,
    summarise,
    write_rehearsal,
)
from pne.results import EvaluationResult, TrainResult, read_result
from pne.spec import ResolvedTrack, Run, load_track, write_spec
from pne.spec.identity import canonical, digest
from pne.spec.reading import suggest
from pne.spec.stock import copied, without_pretrained


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
    command.add_argument("--iterations", type=positive, default=20, metavar="N", help="default: %(default)s")
    command.add_argument("--images", type=positive, default=2, metavar="N", help="test images (default: %(default)s)")
    command.add_argument("--crop", type=positive, metavar="PIXELS", help="shorter side of the crop; scales all sizes")
    command.add_argument("--batch-size", type=positive, metavar="N", help="images per iteration")
    command.add_argument("--micro-batch", type=positive, metavar="N", help="at most N images per forward pass")
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


def shortened(run: Run, config: Mapping[str, Any], results: str, request: Request) -> tuple[Run, dict[str, Any]]:
    """Describe the rehearsal of a run: fewer iterations and, where asked for, a smaller batch and smaller images.

    The contrast begins at once whatever its declared start, because it is its cost that is wanted.

    Parameters
    ----------
    run : Run
        The declared run.
    config : Mapping
        Its whole config.
    results : str
        Folder in place of the track's results, so that nothing of the run itself is touched.
    request : Request

    Raises
    ------
    UserError
        If a crop is asked for but the config names none.
    """
    plain = copied(dict(config))
    plain["train_cfg"] |= {"max_iters": request.iterations, "val_interval": request.iterations}
    plain["train_dataloader"]["batch_size"] = request.batch_size or run.batch_size
    for contrast in contrasts(plain["model"]):
        if contrast.get("start"):
            contrast["start"] = 0
    if request.initial_weights == "random":
        plain["model"] = without_pretrained(plain["model"])
    if request.crop is not None:
        scale_images(plain, request.crop)
    runtime = {"results": results, "save_work": False, "checkpoint_interval": request.iterations}
    changes = {
        "run": f"{run.run}-rehearsal",
        "iterations": request.iterations,
        "batch_size": plain["train_dataloader"]["batch_size"],
        "evaluations": request.evaluations,
        "contrast": run.contrast and run.contrast | {"start": 0},
        "runtime": run.runtime.model_copy(update=runtime),
    }
    return run.model_copy(update=changes), plain


def scale_images(config: dict[str, Any], crop: int) -> None:
    """Scale the crop to a shorter side of ``crop`` pixels, and resized images and sliding windows with it."""
    size = config["model"].get("data_preprocessor", {}).get("size")
    if not size:
        raise UserError("config: model.data_preprocessor.size: missing; the size of the crop is taken from there")
    factor = crop / min(size)
    places = [config["model"]["data_preprocessor"], config["model"].get("test_cfg") or {}]
    for name in ("train_dataloader", "val_dataloader", "test_dataloader"):
        dataset = config[name]["dataset"]
        places += dataset.get("dataset", dataset)["pipeline"]
    for place in places:
        for key in ("size", "crop_size", "stride", "scale"):
            if isinstance(place.get(key), list | tuple):
                place[key] = tuple(max(1, round(side * factor)) for side in place[key])


def largest_images(config: Mapping[str, Any], number: int) -> list[int]:
    """Return the positions of the images with most pixels, in ascending order; of equal ones the earlier.

    They need most memory: sizes differ within ADE20K and COCO-Stuff. Headers alone are read.

    Parameters
    ----------
    config : Mapping
        Config of a data set.
    number : int
        How many; all of them if there are fewer.

    Raises
    ------
    UserError
        If the folders are not there or a header cannot be read.
    """
    from mmseg.registry import DATASETS

    from pne.datasets.files import image_size, usable_threads
    from pne.engine.loaders import check_folder

    check_folder(config)
    listing = {key: value for key, value in config.items() if not key.startswith("cache_")}
    dataset = DATASETS.build({**listing, "pipeline": []})
    dataset.full_init()
    paths = [Path(dataset.get_data_info(index)["img_path"]) for index in range(len(dataset))]
    with ThreadPoolExecutor(usable_threads()) as pool:
        areas = [height * width for height, width in pool.map(image_size, paths)]
    return sorted(sorted(range(len(areas)), key=lambda index: -areas[index])[:number])


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
        self.folder = args.results / track.name / "rehearsals"
        self.records: list[Rehearsal] = []
        self.failures: dict[str, str] = {}

    def rehearse(self, group: Group, stop: StopRequest) -> str:
        """Rehearse one group and say how it went; a failure is noted, not raised."""
        run, args = group.run, self.args
        config = self.track.config(run.run)
        request = Request(
            runs=list(group.stands_for),
            config_sha256=run.config_sha256,
            evaluations=list(group.evaluations),
            initial_weights="declared" if args.declared_weights else "random",
            **{key: getattr(args, key) for key in ("iterations", "images", "crop", "batch_size")},
            **{key: getattr(run.runtime, key) for key in ("device", "gpus", "workers", "threads", "micro_batch")},
        )
        path = record_path(args.results, self.track.name, run.run, request.reduced)
        if not args.again and (found := self._found(request, path)):
            self.records.append(found)
            return "rehearsed already"
        began, log = time.perf_counter(), self.folder / "logs" / f"{run.run}.log"
        self.folder.mkdir(parents=True, exist_ok=True)
        # A folder of its own, so that several rehearsals may go on at a time.
        with TemporaryDirectory(prefix=".work-", dir=self.folder) as work:
            try:
                record = self._train(run, config, request, work, log, stop)
            except UserError as error:
                self.failures[run.run] = str(error)
                return f"FAILED: {error}"
        if record is None:
            return "interrupted"
        write_rehearsal(path, record)
        self.records.append(record)
        memory = record.highest_memory_mib / 1024
        return f"{record.trained.time_s:.3g} s/iter, {memory:.2f} GiB, {duration(time.perf_counter() - began)}"

    def _train(
        self, run: Run, config: Any, request: Request, work: str, log: Path, stop: StopRequest
    ) -> Rehearsal | None:
        from pne.engine.runner import register

        register(config)
        run, plain = shortened(run, config.to_dict(), work, request)
        test = plain["test_dataloader"]["dataset"]
        try:
            test["indices"] = largest_images(test, request.images)
        except UserError as error:
            raise UserError(f"{error} ({log})") from error
        spec = write_spec(run.model_copy(update={"config_sha256": digest(canonical(plain))}), plain)
        status = run_process([sys.executable, "-m", "pne.train", str(spec)], stop, log)
        if stop.signum:
            return None
        if status:
            raise UserError(f"{reason(status, log)} ({log})")
        results = {name: read_result(spec.parent / f"{name}.json", EvaluationResult) for name in run.evaluations}
        return Rehearsal(
            request=request, trained=read_result(spec.parent / "train.json", TrainResult), evaluations=results
        )

    def _found(self, request: Request, path: Path) -> Rehearsal | None:
        """Return the record that is there if it answers the same request with the code of today, here."""
        try:
            found = read_rehearsal(path)
        except UserError:
            return None
        origin = found.trained.provenance
        here = (origin.hostname, origin.code_sha256) == (socket.gethostname(), code_sha256())
        return found if here and found.request == request else None


def reason(status: int, log: Path) -> str:
    """Say in a few words why a process failed: its own last error message, or the signal that killed it."""
    if status < 0:
        name = signal.Signals(-status).name
        return f"killed by {name}" + ("; the machine may have run out of memory" if name == "SIGKILL" else "")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or [f"exit status {status}"]
    return next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), lines[-1])


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
    with listening() as stop:
        for number, group in enumerate(groups, 1):
            say(f"{number}/{len(groups)} {group.run.run} stands for {_count(len(group.stands_for), 'run')}")
            say(f"{number}/{len(groups)} {group.run.run}: {rehearser.rehearse(group, stop)}")
            if stop.signum:
                return EXIT_STATUS[stop.signum]
    print(f"\n{summarise(rehearser.records, track.runs, rehearser.failures)}", flush=True)
    return EXIT_FAILED if rehearser.failures else 0


if __name__ == "__main__":
    sys.exit(main())
