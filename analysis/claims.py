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
from analysis.command import read_for_comparison, resolve, track_parser
from analysis.external import load_external
from analysis.latex_text import to_plain
from analysis.measure import Measurements
from analysis.verdicts import NO_INTERVAL, Judge, Outcome, combine
from pne.declaration.catalogue import read_catalogue
from pne.errors import reports_user_errors
from pne.files import write_text
from pne.resolve import ResolvedTrack

Judged = Mapping[str, tuple[Claim, list[Outcome]]]

# Read above the verdicts, in Markdown and on the report's page.
EXPLANATIONS = {
    "held": "the whole 95 % interval keeps the bound",
    "not held": "the whole interval is beyond it",
    "undecided": f"the interval contains the bound, or there is none ({NO_INTERVAL})",
    "not comparable": "a bound other than 0 is a size, and sizes are compared on the paper's own data sets alone",
    "not measured": "runs behind it are missing",
}
REMARKS = (
    "Intervals of mIoU come from a bootstrap over test images, paired between runs; with one seed they say nothing "
    "about the randomness of training. With several seeds these are resampled too, and what they add is widened as "
    "Student's t asks for so few. Any other quantity has an interval over seeds only, hence none with one seed. "
    "Published: the verdict on the paper's printed numbers, taken as exact."
)


def as_records(judged: Judged) -> list[dict[str, Any]]:
    """Return one flat record per check."""
    records = []
    for key, (claim, outcomes) in judged.items():
        for index, outcome in enumerate(outcomes):
            found = outcome.interval
            records.append(
                {
                    "claim": key,
                    "check": index,
                    "quantity": describe_check(outcome),
                    "minimum": outcome.check.minimum,
                    "maximum": outcome.check.maximum,
                    "published": outcome.published,
                    "published_verdict": outcome.published_verdict,
                    "measured": outcome.measured,
                    "low": None if found is None else found.low,
                    "high": None if found is None else found.high,
                    "seeds": outcome.seeds,
                    "verdict": outcome.verdict,
                    "reason": outcome.reason,
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
    """Write all claims with their checks, and what is behind them: all that a reader of the verdicts needs."""
    records = as_records(judged)
    claims = {
        key: {
            "statement": claim.statement,
            "paper": claim.paper,
            "note": claim.note,
            "published_verdict": combine(outcome.published_verdict for outcome in outcomes),
            "verdict": combine(outcome.verdict for outcome in outcomes),
            "seeds": min(outcome.seeds for outcome in outcomes),
            "checks": [
                {
                    **record,
                    "bounds": bounds_of(outcome),
                    "published_text": write_published(outcome),
                    "measured_text": write_measured(outcome),
                    "cells": [place._asdict() for place in outcome.places],
                }
                for record, outcome in zip(
                    (record for record in records if record["claim"] == key), outcomes, strict=True
                )
            ],
        }
        for key, (claim, outcomes) in judged.items()
    }
    content = {
        "track": track.name,
        "comparable": track.declaration.comparable,
        "about": about_track(track),
        "explanations": EXPLANATIONS,
        "remarks": REMARKS,
        "claims": claims,
    }
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
    lines = [
        "# Claims of the paper, held against its own numbers and against measured ones",
        "",
        about_track(track),
        "",
    ]
    lines += [f"- **{verdict}**: {meaning}" for verdict, meaning in EXPLANATIONS.items()]
    lines += ["", REMARKS, ""]
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


def about_track(track: ResolvedTrack) -> str:
    """Say what was measured and whether the paper's sizes may be compared with it."""
    comparable = (
        "Measured on the paper's data sets."
        if track.declaration.comparable
        else "Other data or shorter runs than the paper's: only signs are compared, sizes are not."
    )
    return f"Track {track.name}: {track.declaration.title.rstrip('.')}. {comparable}"


def bounds_of(outcome: Outcome) -> str:
    """Write the bounds of a check."""
    check = outcome.check
    return ", ".join(
        f"{'>' if sign == '≥' and bound == 0 else '<' if bound == 0 else sign} {bound:g}"
        for sign, bound in (("≥", check.minimum), ("≤", check.maximum))
        if bound is not None
    )


def write_published(outcome: Outcome) -> str:
    """Write the quantity in the paper's numbers."""
    return "–" if outcome.published is None else f"{outcome.published:.4g}".replace("-", "−")


def write_measured(outcome: Outcome) -> str:
    """Write the measured quantity with its interval and number of seeds."""
    if outcome.measured is None:
        return "–"
    found = outcome.interval
    limits = "" if found is None else f" [{found.low:.3g}, {found.high:.3g}]"
    return f"{outcome.measured:.3g}{limits}, n = {outcome.seeds}".replace("-", "−")


def _check_line(outcome: Outcome) -> str:
    published = write_published(outcome)
    published += "" if outcome.published is None else f" ({outcome.published_verdict})"
    verdict = outcome.verdict + (f" ({outcome.reason})" if outcome.reason else "")
    cells = [describe_check(outcome), bounds_of(outcome), published, write_measured(outcome), verdict]
    return f"| {' | '.join(cells)} |"


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
    track, frame = read_for_comparison(track)
    judge = Judge(track, tables, Measurements(frame), scores)
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
