"""Pages of the report: ``python -m analysis.report --track TRACK --page NAME ...`` writes one HTML file per table.

Every measured number leads to the runs behind it: their commands, config, log and provenance.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.figures import title_of
from analysis.results import read_for_comparison, resolve, track_parser
from analysis.tables import EMBEDDING
from analysis.tables.cells import CellKind
from analysis.tables.embedding import print_embedding, read_numbers
from analysis.tables.layout import PrintedTable, Record, print_measured, template
from analysis.tables.values import collect_values, load_external
from pne.errors import UserError, reports_user_errors
from pne.files import write_text
from pne.results import EVALUATIONS, EvaluationResult, TrainResult, read_result_of
from pne.spec import ResolvedTrack, Run
from pne.spec.run import CONFIG_FILE, SPEC_FILE

CLAIMS = "claims"
LOG_LINES = 40


def write_page(name: str, track: ResolvedTrack, results: Path, experiments: Path) -> str:
    """Write one page as HTML from what is finished.

    Raises
    ------
    UserError
        If the track offers no such table, or what the page shows has not been made.
    """
    folder = results / track.name
    if name == CLAIMS:
        return render_claims(read_claims(folder / "claims" / "claims.json"), track)
    table = track.tables.get(name)
    if table is None or not table.available:
        offered = [key for key, table in track.tables.items() if table.available]
        raise UserError(f"track {track.name}: no table {name!r}; allowed: {', '.join([*offered, CLAIMS])}")
    if name == EMBEDDING:
        printed = print_embedding(table, track, read_numbers(folder / "tables" / f"{EMBEDDING}.csv"))
    else:
        track, frame = read_for_comparison(track)
        values = collect_values(track, frame, load_external(experiments / "external.yaml"))
        printed = print_measured(table, track, values)
    return table_page(title_of(table), printed, track)


def table_page(title: str, table: PrintedTable, track: ResolvedTrack) -> str:
    """Write a printed table, and below it the runs of every row, as HTML that needs no other file."""
    runs = {record.key: [describe_run(track.runs[run]) for run in record.runs] for record in table.records}
    links = {
        id(cell): record.key
        for record in table.records
        for cell in record.cells.values()
        if cell.kind in (CellKind.MEASURED, CellKind.MISSING) and record.runs
    }
    return template("page.html").render(title=title, table=table, runs=runs, name_of=name_of, links=links, id=id)


def name_of(record: Record) -> str:
    """Label and settings of a row: what tells it apart from the others; LaTeX text."""
    cells = [cell for side, cell in record.cells.items() if not side.side and cell.kind is CellKind.SETTING]
    return " · ".join([record.row.label, *filter(None, (cell.text for cell in cells))])


@dataclass(frozen=True)
class RunDetails:
    """What a page shows of one run.

    Attributes
    ----------
    run : Run
    commands : list of str
        What trains and evaluates it, from the root of the checkout.
    train : TrainResult or None
    evaluations : dict of str to EvaluationResult
    files : list of (str, str)
        Title and text: spec, config, end of the log.
    problems : list of str
        Why results are missing.
    """

    run: Run
    commands: list[str]
    train: TrainResult | None
    evaluations: dict[str, EvaluationResult]
    files: list[tuple[str, str]]
    problems: list[str]


def describe_run(run: Run) -> RunDetails:
    """Collect what the folder of a run holds; what is missing is left out and named."""
    spec = run.directory / SPEC_FILE
    scored = [
        f"python -m pne.evaluate --evaluation {name} {spec}" for name in run.evaluations if name != EVALUATIONS[0]
    ]
    results: dict[str, Any] = {}
    problems = []
    for name in ("train", *run.evaluations):
        try:
            kind = TrainResult if name == "train" else EvaluationResult
            results[name] = read_result_of(run, name, kind)
        except UserError as error:
            problems.append(str(error))
    texts = {name: _read(run.directory / name) for name in (SPEC_FILE, CONFIG_FILE)}
    texts[f"log (last {LOG_LINES} lines)"] = "\n".join(_read(run.directory / "log").splitlines()[-LOG_LINES:])
    files = [(title, text) for title, text in texts.items() if text]
    return RunDetails(
        run, [f"python -m pne.train {spec}", *scored], results.pop("train", None), results, files, problems
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def read_claims(path: Path) -> dict[str, Any]:
    """Read the verdicts that ``python -m analysis.claims`` has written.

    Raises
    ------
    UserError
        If they have not been made, or an earlier version of this project made them.
    """
    mend = "`snakemake claims` makes them"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError) as error:
        raise UserError(f"{path}: no claims ({error}); {mend}") from None
    missing = [key for key in ("about", "explanations", "remarks", "claims") if key not in content]
    if missing:
        raise UserError(f"{path}: no {', '.join(missing)}: written by another version of this project; {mend} anew")
    return content


def render_claims(content: Mapping[str, Any], track: ResolvedTrack) -> str:
    """Write the page as HTML that needs no other file.

    Parameters
    ----------
    content : mapping
        From `read_claims`.
    track : ResolvedTrack
        Names the runs behind each cell; those with a folder are described once each.
    """
    checks = [check for claim in content["claims"].values() for check in claim["checks"]]
    links = {id(check): _runs_of(check, track) for check in checks}
    runs = {run: describe_run(track.runs[run]) for run in dict.fromkeys(run for of in links.values() for _, run in of)}
    return template("claims.html").render(content=content, runs=runs, links=links, id=id)


def _runs_of(check: Mapping[str, Any], track: ResolvedTrack) -> list[tuple[str, str]]:
    """Return text of the link, and run, of everything that a check is computed from."""
    found = []
    for cell in check["cells"]:
        table = track.tables.get(cell["table"])
        row = table.rows.get(cell["row"]) if table is not None and table.available else None
        for seed, run in (row.runs if row is not None else {}).items():
            if track.runs[run].directory.exists():
                found.append((cell["row"] if len(row.runs) == 1 else f"{cell['row']} seed {seed}", run))
    return found


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Write the pages and print their paths."""
    parser = track_parser("python -m analysis.report", "Write HTML pages: a table with the runs behind every cell.")
    parser.add_argument("--page", action="append", required=True, help="name of a table, or claims; several times")
    args = parser.parse_args(argv)
    track = resolve(args)
    for name in args.page:
        path = args.results / track.name / "report" / f"{name}.html"
        write_text(path, write_page(name, track, args.results, args.experiments))
        print(path)


if __name__ == "__main__":
    sys.exit(main())
