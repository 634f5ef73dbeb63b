"""What the read-only commands share: naming a track, resolving it, reading its results."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.results import collect_runs
from pne.resolve import ResolvedTrack, load_track


def track_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that say which track is meant and where its files are."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--track", default="quick", help="name of experiments/tracks/<track>.yaml (default: quick)")
    parser.add_argument("--experiments", type=Path, default=Path("experiments"), help="folder of the declarations")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--data-root", type=Path, default=None, help="folder of the data sets")
    parser.add_argument("--weights-dir", type=Path, default=None, help="folder of the ImageNet weights")
    parser.add_argument("--seeds", type=_integers, nargs="+", default=None, help="such as 0,1,2 (default: the track's)")
    parser.add_argument("--iterations", type=int, default=None, help="of runs that were shortened for a try")
    return parser


def resolve(args: argparse.Namespace, **changes: Any) -> ResolvedTrack:
    """Resolve the track that the arguments name; shortened runs are comparable with nothing published."""
    track = load_track(
        args.track,
        experiments=args.experiments,
        results=args.results,
        data_root=args.data_root,
        weights_dir=args.weights_dir,
        seeds=None if args.seeds is None else [seed for part in args.seeds for seed in part],
        iterations=args.iterations,
        **changes,
    )
    return track if args.iterations is None else _incomparable(track)


def read_results(track: ResolvedTrack) -> pd.DataFrame:
    """Read the results of all runs of a track, marking those of other training code than today's as stale."""
    from pne.engine.code import code_sha256

    return collect_runs(track.runs.values(), code_sha256())


def read_for_comparison(track: ResolvedTrack) -> tuple[ResolvedTrack, pd.DataFrame]:
    """Read the results of a track; trained on a part of a data set, it is comparable with nothing published."""
    frame = read_results(track)
    partial = any(complete is False for complete in frame["dataset_complete"])
    return (_incomparable(track) if partial else track), frame


def _incomparable(track: ResolvedTrack) -> ResolvedTrack:
    return replace(track, declaration=track.declaration.model_copy(update={"comparable": False}))


def _integers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected integers separated by commas, got {text!r}") from None
