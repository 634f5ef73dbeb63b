"""Keep what finished runs of a track publish, but the weights, in git: ``results/archive/<track>/<run id>/``.

Only results that one clean commit vouches for get in. ``--source archive`` reads them where nothing was trained.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.results import read_results, resolve, track_parser
from analysis.status import summarise
from pne.errors import UserError, reports_user_errors
from pne.files import sha256, written_aside
from pne.results import EvaluationResult, TrainResult, confusion_path, read_result_of
from pne.spec import Run, write_spec
from pne.spec.reading import raise_problems

LARGEST_HISTORY = 1 << 20  # bytes


def archived_files(run: Run) -> Iterator[Path]:
    """Yield what is kept of a finished run beside its description; a history only where it is small."""
    for name in run.evaluations:
        yield confusion_path(run.directory, name)
        yield run.directory / f"{name}.json"
    yield from (path for path in run.directory.glob("history.jsonl") if path.stat().st_size <= LARGEST_HISTORY)
    yield run.directory / "train.json"


def unfit(run: Run, kept: Path) -> Iterator[str]:
    """Say why a finished run must not be archived in the folder ``kept``, with what mends it."""
    again = f"train it anew from a clean checkout: snakemake --config track={run.track} retrain={run.run}"
    train = read_result_of(run, "train", TrainResult)
    codes = {train.provenance.code_sha256, *train.earlier_code_sha256}
    for name in ("train", *run.evaluations):
        result = train if name == "train" else read_result_of(run, name, EvaluationResult)
        path, origin = run.directory / f"{name}.json", result.provenance
        codes.add(origin.code_sha256)
        if origin.git_dirty is not False:
            yield f"{path}: git_dirty {origin.git_dirty}, expected a clean commit; {again}"
        if result.weights_sha256 != train.weights_sha256:
            yield f"{path}: evaluated on other weights than train.json is about; {again}"
    if len(codes) > 1:
        found = ", ".join(sorted(code[:12] for code in codes))
        yield f"{run.directory}: made by {len(codes)} versions of the code ({found}), expected one; {again}"
    for path in archived_files(run):
        if not path.is_file():
            yield f"{path}: no such file, but the archive keeps it; {again}"
        elif (kept / path.name).is_file() and sha256(kept / path.name) != sha256(path):
            yield f"{kept / path.name}: differs from {path}; to let the new result take its place: git rm -r {kept}"


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Archive every finished run of the track, or nothing where one of them is unfit."""
    parser = track_parser("python -m analysis.archive", "Keep results of finished runs in git, but no weights.")
    args = parser.parse_args(argv)
    track = resolve(args, studies=True)
    # As on a machine where nothing is set otherwise than the track says: no paths of this one.
    args.source, args.data_root, args.weights_dir = "archive", None, None
    plain = resolve(args, studies=True)
    frame = read_results(track)
    summary, outdated = summarise(frame).set_index("run"), set(frame.loc[frame["outdated"].eq(True), "run"])
    raise_problems([f"{run}: {row['error']}" for run, row in summary.iterrows() if row["state"] == "failed"])
    finished = [track.runs[run] for run, state in summary["state"].items() if state == "finished" or run in outdated]
    if not finished:
        raise UserError(f"track {track.name}: no finished run in {args.results}; python -m analysis.status names them")
    raise_problems([problem for run in finished for problem in unfit(run, plain.runs[run.run].directory)])
    for run in finished:
        kept = plain.runs[run.run]
        write_spec(kept, plain.config(run.run))
        for path in archived_files(run):
            with written_aside(kept.directory / path.name) as aside:
                shutil.copyfile(path, aside)
        print(kept.directory)
    print(f"{len(finished)} of {len(summary)} runs are archived; commit them: git add {kept.directory.parent}")


if __name__ == "__main__":
    sys.exit(main())
