"""Write a verdict on each claim of the paper: in its own printed numbers, and in the measured ones."""

import argparse
import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.claim_declarations import Claim, load_claims
from analysis.command import read_results, resolve, track_parser
from analysis.external import load_external
from analysis.latex_text import to_plain
from analysis.measure import Measurements
from analysis.verdicts import Judge, Outcome, combine
from pne.declaration.catalogue import read_catalogue
from pne.errors import reports_user_errors
from pne.files import write_text
from pne.resolve import ResolvedTrack

Judged = Mapping[str, tuple[Claim, list[Outcome]]]

_HEAD = """# Claims of the paper, held against its own numbers and against measured ones

Track `{track}`: {title}. {comparable}

**held**: the whole 95 % interval keeps the bound; **not held**: the whole interval is beyond it; **undecided**: the
interval contains the bound. Intervals come from a bootstrap over test images, paired between runs, and over seeds where
there are several; with one seed they say nothing about the randomness of training. A bound other than 0 is a size, and
sizes are compared on the paper's own data sets alone. *Published* is the verdict on the paper's printed numbers.
"""


def as_records(judged: Judged) -> list[dict[str, Any]]:
    """Return one flat record per check."""
    records = []
    for key, (claim, outcomes) in judged.items():
        for index, outcome in enumerate(outcomes):
            found = outcome.measured
            records.append(
                {
                    "claim": key,
                    "check": index,
                    "quantity": describe_check(outcome),
                    "minimum": outcome.check.minimum,
                    "maximum": outcome.check.maximum,
                    "published": outcome.published,
                    "published_verdict": outcome.published_verdict,
                    "measured": None if found is None else found.estimate,
                    "low": None if found is None else found.low,
                    "high": None if found is None else found.high,
                    "seeds": outcome.seeds,
                    "verdict": outcome.verdict,
                    "paper": " ".join(claim.paper),
                    "remarks": " ".join(map(to_plain, outcome.remarks)),
                }
            )
    return records


def describe_check(outcome: Outcome) -> str:
    """Name the quantity of a check by its cells."""
    places = [str(place) for place in outcome.places]
    kind = outcome.check.kind
    if kind == "difference":
        return f"{places[0]} − {places[1]}"
    if kind == "ratio":
        return f"{places[0]} / {places[1]}"
    if kind == "value":
        return places[0]
    if kind == "spread":
        return f"largest − smallest of {places[0]} ... {places[-1]}"
    return f"{places[0]} − best other of its group"


def render_json(judged: Judged, track: ResolvedTrack) -> str:
    """Write all claims with their checks."""
    records = as_records(judged)
    claims = {
        key: {
            "statement": claim.statement,
            "paper": claim.paper,
            "note": claim.note,
            "published_verdict": combine(outcome.published_verdict for outcome in outcomes),
            "verdict": combine(outcome.verdict for outcome in outcomes),
            "checks": [record for record in records if record["claim"] == key],
        }
        for key, (claim, outcomes) in judged.items()
    }
    content = {"track": track.name, "comparable": track.declaration.comparable, "claims": claims}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def render_csv(judged: Judged) -> str:
    """Write one line per check, unrounded."""
    records = as_records(judged)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(records[0]) if records else ["claim"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()


def render_markdown(judged: Judged, track: ResolvedTrack) -> str:
    """Write an overview and, below it, every check with its numbers."""
    declaration = track.declaration
    comparable = (
        "Measured on the paper's data sets."
        if declaration.comparable
        else "Other data or shorter runs than the paper's: only signs are compared, sizes are not."
    )
    lines = [_HEAD.format(track=track.name, title=declaration.title.rstrip("."), comparable=comparable)]
    lines += ["| claim | in the paper | published | measured | seeds |", "| :-- | :-- | :-- | :-- | :-: |"]
    for claim, outcomes in judged.values():
        labels = ", ".join(f"`{label}`" for label in claim.paper)
        published = combine(outcome.published_verdict for outcome in outcomes)
        verdict = combine(outcome.verdict for outcome in outcomes)
        seeds = min(outcome.seeds for outcome in outcomes)
        lines.append(f"| {claim.statement} | {labels} | {published} | {verdict} | {seeds or '–'} |")
    for key, (claim, outcomes) in judged.items():
        lines += ["", f"## {key}", "", claim.statement, ""]
        if claim.note:
            lines += [claim.note, ""]
        lines += ["| quantity | bound | published | measured | verdict |", "| :-- | :-- | :-- | :-- | :-- |"]
        lines += [_check_line(outcome) for outcome in outcomes]
        remarks = dict.fromkeys(to_plain(remark) for outcome in outcomes for remark in outcome.remarks)
        lines += ["", *(f"- {remark}" for remark in remarks)] if remarks else []
    return "\n".join(lines) + "\n"


def _check_line(outcome: Outcome) -> str:
    check, found = outcome.check, outcome.measured
    bounds = [
        f"{'>' if sign == '≥' and bound == 0 else '<' if bound == 0 else sign} {bound:g}"
        for sign, bound in (("≥", check.minimum), ("≤", check.maximum))
        if bound is not None
    ]
    published = "–" if outcome.published is None else f"{outcome.published:.4g} ({outcome.published_verdict})"
    if found is None:
        measured = "–"
    elif found.low == found.high:
        measured = f"{found.estimate:.3g}, n = {outcome.seeds}"
    else:
        measured = f"{found.estimate:.3g} [{found.low:.3g}, {found.high:.3g}], n = {outcome.seeds}"
    return f"| {describe_check(outcome)} | {', '.join(bounds)} | {published} | {measured} | {outcome.verdict} |"


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m analysis.claims``."""
    return track_parser("python -m analysis.claims", "Write verdicts on the paper's claims, whatever is finished.")


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Judge all claims and print the paths of the files."""
    args = parser().parse_args(argv)
    track = resolve(args)
    tables = read_catalogue(args.experiments).tables
    claims = load_claims(args.experiments / "claims.yaml", tables)
    scores = load_external(args.experiments / "external.yaml")
    judge = Judge(track, tables, Measurements(read_results(track)), scores)
    judged = {key: (claim, judge.outcomes(claim)) for key, claim in claims.items()}
    folder: Path = args.results / track.name / "claims"
    for name, text in (
        ("claims.md", render_markdown(judged, track)),
        ("claims.csv", render_csv(judged)),
        ("claims.json", render_json(judged, track)),
    ):
        write_text(folder / name, text)
        print(folder / name)


if __name__ == "__main__":
    sys.exit(main())
