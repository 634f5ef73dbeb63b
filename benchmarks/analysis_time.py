"""How long tables and claims of a whole track take, from made-up result files that serve the timing alone.

The numbers are drawn from a random generator, written to a temporary folder through the real result files and thrown
away; none of them says anything about a loss.

    python benchmarks/analysis_time.py --track paper --seeds 0,1,2
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis import plan, status
from analysis.claims import __main__ as claims
from analysis.tables import __main__ as tables
from pne.engine.provenance import code_sha256
from pne.files import written_aside
from pne.results import ContrastSummary, EvaluationResult, Provenance, TrainResult, write_result
from pne.spec import Run, load_track


def make_up_results(
    run: Run, generator: np.random.Generator, *, skill: float = 0.6, images: int = 60, classes: int = 19
) -> None:
    """Write every result file of a run with made-up numbers, consistent among themselves.

    Parameters
    ----------
    run : Run
    generator : numpy.random.Generator
    skill : float
        Share of pixels that are predicted correctly, between 0 and 1.
    images, classes : int
        Size of the made-up test set.
    """
    weights = f"{generator.integers(16**8):064x}"
    provenance = Provenance(
        git_commit=None,
        git_dirty=None,
        code_sha256=code_sha256(run),
        versions={"python": "3"},
        device="made up",
        hostname="nowhere",
        world_size=1,
        micro_batch=run.batch_size,
        dataset_fingerprint="made up",
        seed=run.seed,
        started="2000-01-01T00:00:00+00:00",
        ended="2000-01-01T00:00:01+00:00",
    )
    for evaluation in run.evaluations:
        _make_up_evaluation(run, evaluation, generator, provenance, weights, skill, images, classes)
    contrast = None
    if run.contrast is not None:
        statistics = {"loss_contrast": 0.7, "anchors": 200.0, "weight_std": float(generator.uniform(0.1, 2))}
        contrast = ContrastSummary(
            iterations=run.iterations, active_fraction=1.0, healthy=True, final_statistics=statistics
        )
    train = TrainResult(
        run=run.run,
        iterations=run.iterations,
        time_s=float(generator.uniform(0.1, 2)),
        peak_memory_mib=1000.0,
        memory_kind="resident_set",
        resumes=0,
        losses={"loss_ce": 0.5},
        contrast=contrast,
        parameters=1000,
        weights_sha256=weights,
        provenance=provenance,
    )
    write_result(run.directory / "train.json", train)


def _make_up_evaluation(
    run: Run,
    evaluation: str,
    generator: np.random.Generator,
    provenance: Provenance,
    weights: str,
    skill: float,
    images: int,
    classes: int,
) -> None:
    wrong = np.full((classes, classes), (1 - skill) / (classes - 1))
    np.fill_diagonal(wrong, skill)
    counts = generator.poisson(1000 * wrong, size=(images, classes, classes))
    image, true, predicted = np.nonzero(counts)
    with written_aside(run.directory / f"{evaluation}.confusion.npz") as aside:
        np.savez_compressed(
            aside,
            image=image.astype(np.int32),
            true=true.astype(np.int32),
            predicted=predicted.astype(np.int32),
            count=counts[image, true, predicted].astype(np.int64),
            names=np.array([f"image_{index}" for index in range(images)]),
            shape=np.array(counts.shape, dtype=np.int64),
        )
    total = counts.sum(0)
    iou = 100 * np.diag(total) / (total.sum(0) + total.sum(1) - np.diag(total))
    result = EvaluationResult(
        run=run.run,
        evaluation=evaluation,
        miou=float(iou.mean()),
        aacc=float(100 * np.trace(total) / total.sum()),
        class_iou={f"class_{index}": float(value) for index, value in enumerate(iou)},
        images=images,
        time_s=1.0,
        weights_sha256=weights,
        provenance=provenance,
    )
    write_result(run.directory / f"{evaluation}.json", result)


def main(argv: Sequence[str] | None = None) -> None:
    """Time the commands on a track whose every run is finished."""
    parser = argparse.ArgumentParser(prog="python benchmarks/analysis_time.py", description=main.__doc__)
    parser.add_argument("--track", default="paper")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--images", type=int, default=500, help="test images of every data set")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        track = load_track(args.track, results=Path(folder), seeds=[int(seed) for seed in args.seeds.split(",")])
        generator = np.random.default_rng(0)
        for run in track.runs.values():
            make_up_results(run, generator, skill=float(generator.uniform(0.55, 0.65)), images=args.images)
        options = ["--track", args.track, "--seeds", args.seeds, "--results", folder]
        lines = [
            f"{len(track.runs)} made-up runs of track {args.track}, {args.images} test images; imports not counted"
        ]
        for command in (tables, claims, plan, status):
            start = time.perf_counter()
            if command.main(options):
                raise SystemExit(f"{command.__name__} failed")
            lines.append(f"{command.__name__.removesuffix('.__main__')}: {time.perf_counter() - start:.1f} s")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
