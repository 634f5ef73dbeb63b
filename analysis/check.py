"""Verify the results of a track, or its archive, and say what mends each finding: ``python -m analysis.check``.

Reads only. A run that has left no result is no finding.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.figures import features_file
from analysis.results import resolve, track_parser
from pne.errors import UserError, reports_user_errors
from pne.extract.archives import is_extracted
from pne.files import sha256
from pne.results import EvaluationResult, TrainResult, finished_result, read_result_of
from pne.spec import Run, read_config, read_spec

MADE_OF_RESULTS = ("table", "published", "claims", "selection", "map", "figure", "page", "image")


def of_run(run: Run) -> Iterator[str]:
    """Yield what is wrong with what a run has left; weights are checked by those who read them."""
    names = ("train", *run.evaluations)
    if not any((run.directory / f"{name}.json").exists() for name in names):
        return
    again = f"`snakemake run_{run.run} --config track={run.track} seeds={run.seed}` makes it again"
    if run.archived:
        again = f"`git restore {run.directory}` puts it back"
    trained = finished_result(run, "train")
    for name in names:
        path = run.directory / f"{name}.json"
        try:
            found = read_result_of(run, name, TrainResult if name == "train" else EvaluationResult)
        except UserError as error:
            yield f"{error}; {again}" if path.exists() else f"{path}: not there; {again}"
        else:
            if trained and found.weights_sha256 != trained.weights_sha256:
                yield f"{path}: of other weights than train.json; {again}"
    try:
        if (spec := run.directory / "spec.yaml").exists():  # copied results need none
            read_spec(spec), read_config(spec)
    except UserError as error:
        yield f"{error}; {again}"
    if run.archived:
        return
    if trained and not (path := run.directory / "history.jsonl").exists():
        yield f"{path}: not there; put a copy of it back, or its training curves are lost"
    if trained and (path := features_file(run)).exists() and not is_extracted(path, trained):
        yield f"{path}: not of the weights of train.json; `snakemake table_embedding` extracts them again"
    for path in run.work_directory.glob("iter_*.pth") if trained else ():
        yield f"{path}: a checkpoint of a training that is finished; delete it"


def of_receipts(folder: Path) -> Iterator[str]:
    """Yield receipts of tables, figures, claims and pages whose files, or what they were made from, have changed."""
    for receipt in sorted(folder.rglob("[!.]*")):
        if receipt.relative_to(folder).parts[0] in MADE_OF_RESULTS and receipt.is_file():
            for line in receipt.read_text(encoding="utf-8", errors="replace").splitlines():
                digest, _, file = line.partition("  ")
                if (sha256(Path(file)) if Path(file).is_file() else "missing") != digest:
                    yield f"{receipt}: {file} has changed; the workflow makes it again when asked for {receipt.name}"
                    break


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Print every finding, then how much was looked at; exit status 1 if there is any."""
    parser = track_parser("python -m analysis.check", "Verify results, and say what mends what is wrong.")
    args = parser.parse_args(argv)
    track = resolve(args, studies=True)
    findings = [finding for run in track.runs.values() for finding in of_run(run)]
    if args.source is None:
        findings += of_receipts(args.results / track.name / "receipts")
    trained = sum((run.directory / "train.json").exists() for run in track.runs.values())
    print(*findings, f"track {track.name}: {trained} of {len(track.runs)} runs are trained", sep="\n", end="; ")
    print(f"{len(findings)} findings")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
