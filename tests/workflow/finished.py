"""Results as finished runs leave them, with numbers made up, for tests that ask what a workflow would still do."""

import hashlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
from checkout import Checkout

from analysis.figures import features_file, resolve_figures
from pne.counts import Confusion, ImageCounts, scores, write_confusion
from pne.engine.provenance import code_sha256
from pne.files import sha256, write_text
from pne.results import ContrastSummary, EvaluationResult, Provenance, TrainResult, confusion_path, write_result
from pne.spec import Run, load_track, write_spec
from workflows import receipts

WEIGHTS = "0" * 64
RECEIPT = re.compile(r"workflows\.receipts (?!--before)(.*)$", re.MULTILINE)
STATISTICS = (
    "loss_contrast",
    "anchors",
    "sets",
    "positive_similarity",
    "negative_similarity",
    "weight_mean",
    "weight_std",
)
COUNTS = Confusion.of([ImageCounts("street", np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([50, 20, 30]))], 2)


def finish_track(name: str = "quick") -> dict[str, Run]:
    """Write what all runs and tables of a track leave in the current folder, texts made up; return the runs."""
    track = load_track(name)
    for run in track.runs.values():
        write_spec(run, track.config(run.run))
        finish_run(run, code_sha256(run, Path("pne").resolve()))
    for dataset in track.declaration.datasets.values():
        marker = Path(track.declaration.data_root, dataset.folder, "meta.json")
        write_text(marker, "{}\n")
    for row in track.tables["embedding"].rows.values():
        for run in row.runs.values():
            extract(features_file(track.runs[run]), run)
    for key, table in track.tables.items():
        for suffix in ("tex", "csv", "md") if table.available else ():
            write_text(f"results/{name}/tables/{key}.{suffix}", "made up")
    return track.runs


def extract(path: Path, run: str, weights: str = WEIGHTS, **about: str) -> None:
    """Write what an extraction says about itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, about=np.array(json.dumps({"run": run, "weights_sha256": weights, **about})))


def give_receipts(checkout: Checkout, *targets: str) -> None:
    """Write the receipts that the jobs for some targets would leave, for files that are there already."""
    for words in RECEIPT.findall(checkout.ask("--dry-run", "--printshellcmds", *targets)):
        receipts.main(shlex.split(words))


def finish_run(run: Run, code: str) -> None:
    """Write ``train.json`` and every evaluation that the run is asked for."""
    provenance = Provenance(
        git_commit=None,
        git_dirty=None,
        code_sha256=code,
        versions={"python": "3.11"},
        device="cpu: made up",
        hostname="nowhere",
        world_size=1,
        micro_batch=run.batch_size,
        dataset_fingerprint="0" * 64,
        seed=run.seed,
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:01:00+00:00",
    )
    summary = ContrastSummary(
        iterations=90, active_fraction=1.0, healthy=True, final_statistics=dict.fromkeys(STATISTICS, 0.5)
    )
    write_result(
        run.directory / "train.json",
        TrainResult(
            run=run.run,
            iterations=run.iterations,
            time_s=0.1,
            peak_memory_mib=500,
            memory_kind="resident_set",
            resumes=0,
            losses={"loss": 1.0},
            contrast=summary if run.contrast else None,
            parameters=1000,
            weights_sha256=WEIGHTS,
            provenance=provenance,
        ),
    )
    write_text(run.directory / "history.jsonl", '{"iteration": 1, "loss": 1.0}\n')
    miou, aacc, iou = scores(COUNTS.total())
    for evaluation in run.evaluations:
        counts = confusion_path(run.directory, evaluation)
        write_confusion(counts, COUNTS)
        write_result(
            run.directory / f"{evaluation}.json",
            EvaluationResult(
                run=run.run,
                evaluation=evaluation,
                miou=miou,
                aacc=aacc,
                class_iou=dict(zip(("road", "sky"), iou, strict=True)),
                images=1,
                time_s=3.0,
                weights_sha256=WEIGHTS,
                counts_sha256=sha256(counts),
                provenance=provenance,
            ),
        )


def draw_track() -> None:
    """Write what figures, claims and the report of the quick track leave, each after what it is made from."""
    track = load_track("quick")
    figures = resolve_figures(track, Path("experiments"))
    for run in dict.fromkeys(run for figure in figures.values() for run in figure.first_seed_runs):
        extract(features_file(track.runs[run]), run)
    files = [f"results/quick/report/{name}.png" for name in figures]
    for name in ("map", "selection"):
        suffix = "npz" if name == "map" else "json"
        files += [f"results/quick/figures/data/{figure}/{name}.{suffix}" for figure in figures]
    shown = hashlib.sha256(b"made up").hexdigest()
    for name, figure in figures.items():
        for run in figure.first_seed_runs:
            extract(Path(f"results/quick/figures/data/{name}/{run}.npz"), run, selection_sha256=shown)
    files += [f"results/quick/figures/{name}.{suffix}" for name in figures for suffix in ("pdf", "png", "md")]
    files += [f"results/quick/claims/claims.{suffix}" for suffix in ("csv", "json", "md")]
    pages = [name for name, table in track.tables.items() if table.available]
    files += [f"results/quick/report/{name}.html" for name in (*pages, "claims")]
    for file in map(Path, dict.fromkeys(files)):
        if not file.exists():
            write_text(file, "made up")
