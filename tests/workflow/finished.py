"""Results as finished runs leave them, with numbers made up, for tests that ask what a workflow would still do."""

from pathlib import Path

from analysis.figures import features_file, resolve_figures
from pne.engine.provenance import code_sha256
from pne.files import write_text
from pne.results import ContrastSummary, EvaluationResult, Provenance, TrainResult, write_result
from pne.spec import Run, load_track, write_spec

STATISTICS = (
    "loss_contrast",
    "anchors",
    "sets",
    "positive_similarity",
    "negative_similarity",
    "weight_mean",
    "weight_std",
)


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
            write_text(features_file(track.runs[run]), "made up")
    for key, table in track.tables.items():
        for suffix in ("tex", "csv", "md") if table.available else ():
            write_text(f"results/{name}/tables/{key}.{suffix}", "made up")
    return track.runs


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
            weights_sha256="0" * 64,
            provenance=provenance,
        ),
    )
    for evaluation in run.evaluations:
        write_result(
            run.directory / f"{evaluation}.json",
            EvaluationResult(
                run=run.run,
                evaluation=evaluation,
                miou=30.0,
                aacc=60.0,
                class_iou={"road": 30.0},
                images=60,
                time_s=3.0,
                weights_sha256="0" * 64,
                provenance=provenance,
            ),
        )


def draw_track() -> None:
    """Write what figures, claims and the report of the quick track leave, each after what it is made from."""
    track = load_track("quick")
    figures = resolve_figures(track, Path("experiments"))
    files = [features_file(track.runs[run]) for figure in figures.values() for run in figure.first_seed_runs]
    for name in ("map", "selection"):
        suffix = "npz" if name == "map" else "json"
        files += [f"results/quick/figures/data/{figure}/{name}.{suffix}" for figure in figures]
    for name, figure in figures.items():
        files += [f"results/quick/figures/data/{name}/{run}.npz" for run in figure.first_seed_runs]
    files += [f"results/quick/figures/{name}.{suffix}" for name in figures for suffix in ("pdf", "png", "md")]
    files += [f"results/quick/claims/claims.{suffix}" for suffix in ("csv", "json", "md")]
    pages = [name for name, table in track.tables.items() if table.available]
    files += [f"results/quick/report/{name}.html" for name in (*pages, "claims")]
    for file in map(Path, dict.fromkeys(files)):
        if not file.exists():
            write_text(file, "made up")
