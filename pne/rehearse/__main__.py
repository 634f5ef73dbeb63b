"""Rehearse the runs of a track: ``python -m pne.rehearse --track paper --data-root DIR``.

Every declared run trains for a few iterations on the machine at hand, with its real config, loader and batch, and
scores the largest test images; runs that differ in the contrast's weight or temperature, or in the seed, are rehearsed
once. A rehearsal is ``python -m pne.train`` on a shortened spec in a folder of its own below
``results/<track>/rehearsals``; ``python -m analysis.plan`` reads its seconds per iteration and peak memory. Results and
checkpoints of the runs themselves are never touched.

Exit status: 0 all done; 1 a rehearsal failed (the others are done); 2 an error that concerns all; 75, 130
on signals.
"""

import argparse
import math
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mmengine.config import Config

from pne.console import duration, positive, say
from pne.engine.command import EXIT_FAILED, EXIT_STATUS, StopRequest, listening, run_process
from pne.engine.provenance import code_sha256
from pne.errors import UserError, reports_user_errors
from pne.rehearse.record import SUFFIX, contrasts, group_runs, read_rehearsal
from pne.results import TrainResult, read_result
from pne.spec import ResolvedTrack, Run, load_track, read_spec, write_spec
from pne.spec.__main__ import add_track_options, track_options
from pne.spec.identity import canonical, digest
from pne.spec.resolve import restricted
from pne.spec.stock import without_pretrained


def parser() -> argparse.ArgumentParser:
    """Return the command line of ``python -m pne.rehearse``."""
    command = argparse.ArgumentParser(
        prog="python -m pne.rehearse",
        description=__doc__.split("\n\n")[1],
        epilog="A rehearsal of the same code and settings that was made on this machine before is not repeated.",
    )
    add_track_options(command)
    command.add_argument("--iterations", type=positive, default=20, metavar="N", help="default: %(default)s")
    command.add_argument("--images", type=positive, default=2, metavar="N", help="test images (default: %(default)s)")
    command.add_argument("--crop", type=positive, metavar="PIXELS", help="shorter side of the crop; scales all sizes")
    command.add_argument("--batch-size", type=positive, metavar="N", help="images per iteration")
    command.add_argument("--declared-weights", action="store_true", help="start from the runs' own initial weights")
    command.add_argument("--again", action="store_true", help="repeat rehearsals that are there")
    return command


def chosen(track: ResolvedTrack, runs: Sequence[str] | None, tables: Sequence[str] | None) -> list[list[Run]]:
    """Return the groups that stand for some of the given runs or the runs of the given tables, all of them for None.

    Raises
    ------
    UserError
        If the track has no such run or table.
    """
    wanted = set(runs or ()) | set(restricted(track, tables).runs if tables else ())
    for run in wanted:
        track.config(run)  # names the nearest run where there is none
    return [group for group in group_runs(track) if not wanted or wanted & {run.run for run in group}]


def shortened(group: Sequence[Run], config: Config, args: argparse.Namespace) -> tuple[Run, dict[str, Any]]:
    """Describe the rehearsal of a group of runs: fewer iterations and, where asked for, smaller batch and images.

    The contrast begins at once whatever its declared start, because it is its cost that is wanted.

    Parameters
    ----------
    group : sequence of Run
        The first one is rehearsed, scored as any of them is.
    config : Config
        Its whole config.
    args : Namespace
        From `parser`.

    Returns
    -------
    (Run, dict)
        The shortened run, and its config, which scores all test images.

    Raises
    ------
    UserError
        If a crop is asked for but the config names none.
    """
    run, plain = group[0], config.to_dict()
    plain["train_cfg"] |= {"max_iters": args.iterations, "val_interval": args.iterations}
    plain["train_dataloader"]["batch_size"] = batch_size = args.batch_size or run.batch_size
    for contrast in contrasts(plain["model"]):
        if contrast.get("start"):
            contrast["start"] = 0
    if not args.declared_weights:
        plain["model"] = without_pretrained(plain["model"])
    if args.crop:
        scale_images(plain, args.crop)
    folder = "rehearsals/reduced" if args.crop or args.batch_size else "rehearsals"
    where = {"results": f"{run.runtime.results}/{folder}", "save_work": False, "checkpoint_interval": args.iterations}
    changes = {
        "run": run.run + SUFFIX,
        "iterations": args.iterations,
        "batch_size": batch_size,
        "evaluations": list(dict.fromkeys(name for member in group for name in member.evaluations)),
        "contrast": run.contrast and run.contrast | {"start": 0},
        "runtime": run.runtime.model_copy(update=where),
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


def largest_images(config: dict[str, Any], number: int) -> list[int]:
    """Return the positions of the images with most pixels, in ascending order; of equal ones the earlier.

    They need most memory: sizes differ within ADE20K and COCO-Stuff. Headers alone are read.

    Parameters
    ----------
    config : dict
        Config of a data set.
    number : int
        How many; all of them if there are fewer.

    Raises
    ------
    UserError
        If the folders are not there or a header cannot be read.
    """
    from mmseg.registry import DATASETS

    from pne.datasets.files import read_size, usable_threads
    from pne.engine.loaders import check_folder

    check_folder(config)
    listing = {key: value for key, value in config.items() if not key.startswith("cache_")}
    dataset = DATASETS.build({**listing, "pipeline": []})
    dataset.full_init()
    paths = [Path(dataset.get_data_info(index)["img_path"]) for index in range(len(dataset))]
    with ThreadPoolExecutor(usable_threads()) as pool:
        areas = [math.prod(found.size) for found in pool.map(read_size, paths)]
    return sorted(sorted(range(len(areas)), key=lambda index: -areas[index])[:number])


def rehearse(group: Sequence[Run], config: Config, args: argparse.Namespace, stop: StopRequest) -> str:
    """Rehearse a group of runs, unless it was done before with the same settings and code here; say how it went.

    Raises
    ------
    UserError
        If it fails, with the reason and the log.
    """
    from pne.engine.runner import register

    began = time.perf_counter()
    register(config)
    run, plain = shortened(group, config, args)
    test = plain["test_dataloader"]["dataset"]
    test["indices"] = largest_images(test, args.images)
    run = run.model_copy(update={"config_sha256": digest(canonical(plain))})
    if not args.again and is_rehearsed(run):
        return f"rehearsed already, {read_rehearsal(run.directory)}"
    for folder in (run.directory, run.work_directory):
        shutil.rmtree(folder, ignore_errors=True)
    spec, log = write_spec(run, plain), run.directory / "log"
    status = run_process([sys.executable, "-m", "pne.train", str(spec)], stop, log)
    shutil.rmtree(run.work_directory, ignore_errors=True)
    if stop.signum:
        return "interrupted"
    if status:
        raise UserError(f"{reason(status, log)} ({log})")
    return f"{read_rehearsal(run.directory)}, took {duration(time.perf_counter() - began)}"


def is_rehearsed(run: Run) -> bool:
    """Whether a rehearsal by the same spec and today's code on this machine is there."""
    try:
        known = read_spec(run.directory / "spec.yaml")
        origin = read_result(run.directory / "train.json", TrainResult).provenance
    except UserError:
        return False
    return known == run and (origin.hostname, origin.code_sha256) == (socket.gethostname(), code_sha256(run))


def reason(status: int, log: Path) -> str:
    """Say in a few words why a process failed: its own last error message, or the signal that killed it."""
    if status < 0:
        name = signal.Signals(-status).name
        return f"killed by {name}" + ("; the machine may have run out of memory" if name == "SIGKILL" else "")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or [f"exit status {status}"]
    return next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), lines[-1])


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Rehearse, and print what was found; return the exit status."""
    args = parser().parse_args(argv)
    track = load_track(args.track, studies=bool(args.run or args.tables), **track_options(args))
    groups = chosen(track, args.run, args.tables)
    failures = []
    say(f"{len(groups)} rehearsals for {sum(map(len, groups))} runs")
    with listening() as stop:
        for number, group in enumerate(groups, 1):
            name = f"{number}/{len(groups)} {group[0].run}"
            say(f"{name} stands for {len(group)} of them")
            try:
                say(f"{name}: {rehearse(group, track.config(group[0].run), args, stop)}")
            except UserError as error:
                failures.append(f"FAILED {group[0].run}: {error}")
                say(f"{name}: FAILED: {error}")
            if stop.signum:
                return EXIT_STATUS[stop.signum]
    if args.crop or args.batch_size:
        print("\nCrop or batch were reduced: seconds and memory show that the runs work, not what they cost.")
    else:
        print(f"\nHours and GPU memory of all runs: python -m analysis.plan --track {track.name}")
    print("\n".join(failures), flush=True)
    return EXIT_FAILED if failures else 0


if __name__ == "__main__":
    sys.exit(main())
