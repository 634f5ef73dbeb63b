"""Write a verdict on each claim of the paper: in its own printed numbers, and in the measured ones."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.claims import Claim, load_claims
from analysis.claims.verdicts import NO_INTERVAL, Judge, Outcome, combine
from analysis.latex_text import to_plain
from analysis.results import read_for_comparison, resolve, track_parser
from analysis.tables.layout import template
from analysis.tables.values import collect_values, load_external
from pne.errors import reports_user_errors
from pne.files import write_text
from pne.spec import ResolvedTrack
from pne.spec.catalogue import read_catalogue

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


def as_record(key: str, index: int, claim: Claim, outcome: Outcome) -> dict[str, Any]:
    """Return a check and its outcome as one flat record."""
    found = outcome.interval
    return {
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


def describe_check(outcome: Outcome) -> str:
    """Name the quantity of a check by its cells."""
    first, last = str(outcome.places[0]), str(outcome.places[-1])
    return {
        "difference": f"{first} − {last}",
        "ratio": f"{first} / {last}",
        "value": first,
        "spread": f"largest − smallest of {first} ... {last}",
        "lead": f"{first} − best other of its group",
    }[outcome.check.kind]


def describe(judged: Judged, track: ResolvedTrack) -> dict[str, Any]:
    """Return all claims with their checks, and what is behind them: all that a reader of the verdicts needs."""
    claims = {
        key: {
            "statement": claim.statement,
            "paper": claim.paper,
            "note": claim.note,
            "published_verdict": combine(outcome.published_verdict for outcome in outcomes),
            "verdict": combine(outcome.verdict for outcome in outcomes),
            "seeds": min(outcome.seeds for outcome in outcomes),
            "checks": [
                as_record(key, index, claim, outcome)
                | {
                    "bounds": bounds_of(outcome),
                    "published_text": write_published(outcome),
                    "measured_text": write_measured(outcome),
                    "cells": [place._asdict() for place in outcome.places],
                }
                for index, outcome in enumerate(outcomes)
            ],
        }
        for key, (claim, outcomes) in judged.items()
    }
    return {
        "track": track.name,
        "comparable": track.declaration.comparable,
        "about": about_track(track),
        "explanations": EXPLANATIONS,
        "remarks": REMARKS,
        "claims": claims,
    }


def render_csv(judged: Judged) -> str:
    """Write one line per check, unrounded."""
    records = [
        as_record(key, index, claim, outcome)
        for key, (claim, outcomes) in judged.items()
        for index, outcome in enumerate(outcomes)
    ]
    return pd.DataFrame(records, dtype=object).to_csv(index=False, lineterminator="\n")


def render_markdown(judged: Judged, content: Mapping[str, Any]) -> str:
    """Write an overview and, below it, every check with its numbers."""
    remarks = {
        key: dict.fromkeys(to_plain(remark) for outcome in outcomes for remark in outcome.remarks)
        for key, (_, outcomes) in judged.items()
    }
    return template("claims.md").render(content=content, remarks_of=remarks)


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


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Judge all claims and print the paths of the files."""
    parser = track_parser("python -m analysis.claims", "Write verdicts on the paper's claims, whatever is finished.")
    args = parser.parse_args(argv)
    track = resolve(args)
    tables = read_catalogue(args.experiments).tables
    claims = load_claims(args.experiments / "claims.yaml", tables)
    scores = load_external(args.experiments / "external.yaml")
    track, frame = read_for_comparison(track)
    judge = Judge(track, tables, collect_values(track, frame, scores))
    judged = {key: (claim, judge.outcomes(claim)) for key, claim in claims.items()}
    content = describe(judged, track)
    folder: Path = args.results / track.name / "claims"
    for name, text in (
        ("claims.md", render_markdown(judged, content)),
        ("claims.csv", render_csv(judged)),
        ("claims.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n"),
    ):
        write_text(folder / name, text)
        print(folder / name)


if __name__ == "__main__":
    sys.exit(main())
