"""Samples per second and core: a data set's training pipeline as mmsegmentation runs it and as this project does.

    python benchmarks/loader.py --config experiments/datasets/camvid.py --data-root data/camvid

Both give the same samples, bit by bit (`tests/pne/datasets/test_transforms.py`). Each is measured with files that are
decoded for every sample and with files that are kept decoded (`cache_data`). The four ways take turns in one process
with one thread; processor time counts, so that other work of the machine disturbs little.
"""

import argparse
import json
import runpy
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import cv2
import torch
from mmseg.registry import DATASETS

from pne.datasets.positioned import Draw, PositionedInfiniteSampler, PositionSeeded
from pne.datasets.transforms import quicken
from pne.engine.provenance import device_name, versions
from pne.engine.runner import register

BATCH = 16
WAYS = ("mmseg", "mmseg cached", "pne", "pne cached")


def build(config: dict[str, Any], way: str) -> PositionSeeded:
    """Build the data set of a way, decoded where that is its way."""
    dataset = DATASETS.build({**config, "cache_data": way.endswith("cached")})
    if way.startswith("pne"):
        quicken(dataset.pipeline.transforms)
    return PositionSeeded(dataset)


def seconds(dataset: PositionSeeded, draws: Sequence[Draw], way: str) -> float:
    """Processor seconds per sample, drawn in batches: as this project's loader asks for them, or one by one."""
    batches = [draws[first : first + BATCH] for first in range(0, len(draws), BATCH)]
    began = time.process_time()
    for batch in batches:
        _ = dataset.__getitems__(batch) if way.startswith("pne") else [dataset[draw] for draw in batch]
    return (time.process_time() - began) / len(draws)


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--config", type=Path, required=True, help="data set with a train_dataloader of this project's")
    result.add_argument("--data-root", type=Path, required=True, help="its folder")
    result.add_argument("--samples", type=int, default=96, help="samples of a round (default: %(default)s)")
    result.add_argument("--rounds", type=int, default=15, help="rounds (default: %(default)s)")
    result.add_argument("--output", type=Path, help="append JSON lines to this file")
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    args = parser().parse_args(argv)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    register({})
    config = runpy.run_path(str(args.config))["train_dataloader"]["dataset"] | {"data_root": str(args.data_root)}
    datasets = {way: build(config, way) for way in WAYS}
    draws = list(islice(PositionedInfiniteSampler(datasets["pne"], seed=0), args.samples))
    for way, dataset in datasets.items():
        seconds(dataset, draws[:BATCH], way)  # warm-up
    rounds = [{way: seconds(dataset, draws, way) for way, dataset in datasets.items()} for _ in range(args.rounds)]
    print(f"{args.config.stem}, {device_name(torch.device('cpu'))}, {args.rounds} rounds of {args.samples} samples")
    print(f"{'':14}{'samples/s/core':>16}{'times mmseg':>13}{'half of the rounds':>20}{'times mmseg cached':>20}")
    for way in WAYS:
        ratios = [found["mmseg"] / found[way] for found in rounds]
        low, _, high = quantiles(ratios, n=4)
        line = {
            "way": way,
            "config": args.config.stem,
            "samples_per_second_and_core": 1 / median(found[way] for found in rounds),
            "ratio": median(ratios),
            "ratio_quartiles": [low, high],
            "ratio_cached": median(found["mmseg cached"] / found[way] for found in rounds),
            "samples": args.samples,
            "rounds": args.rounds,
            "device": device_name(torch.device("cpu")),
            "versions": versions(),
        }
        spread = f"{low:.2f} to {high:.2f}"
        rates = (
            f"{line['samples_per_second_and_core']:16.0f}{line['ratio']:13.2f}{spread:>20}{line['ratio_cached']:20.2f}"
        )
        print(f"{way:14}{rates}")
        if args.output is not None:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            with args.output.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
