"""Write a verdict on each claim of the paper: in its own printed numbers, and in the measured ones."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.claims import Claim, load_claims
from analysis.claims.verdicts import Judge, Outcome, combine, say
from analysis.latex_text import to_plain
from analysis.results import read_for_comparison, resolve, track_parser
from analysis.tables.embedding import embedding_values
from analysis.tables.layout import template
from analysis.tables.values import collect_values, load_external
from analysis.uncertainty import FEWEST_SEEDS, Interval
from pne.errors import reports_user_errors
from pne.files import write_text
from pne.spec import ResolvedTrack
from pne.spec.catalogue import read_catalogue

# Read above the verdicts, in Markdown and on the report's page.
EXPLANATIONS = {
    "held": "the whole 95 % interval over seeds keeps the bound, for every check of the claim",
    "not held": "the bound is broken at 5 %, after Holm over the checks of the claim",
    "undetermined": "neither",
    "not enough seeds": f"fewer than {FEWEST_SEEDS} seeds decide nothing",
    "not comparable": "a bound other than 0 is a size, and sizes are compared on the paper's own data sets alone; "
    "so are rows that the paper quotes",
    "not measured": "runs behind it are missing",
    "not reported": "the paper prints no number of it",
    "not tested": "for the reason given",
}
REMARKS = (
    "Verdicts and intervals concern other seeds on the same test images (docs/statistics.md). Images: the interval "
    "over other test images, which decides nothing. Published: the verdict on the paper's printed numbers, taken as "
    "exact. A claim has the weakest verdict that one of its checks has."
)


def as_record(key: str, index: int, claim: Claim, outcome: Outcome, track: ResolvedTrack) -> dict[str, Any]:
    """Return a check and its outcome as one record, flat but for its cells; unknown ends of intervals are empty."""
    absent = Interval(None, None, None)
    measured, images = outcome.measured or absent, outcome.images or absent
    names = ("measured", "low", "high", "image_low", "image_high")
    numbers = dict(zip(names, (*measured, *images[1:]), strict=True))
    tested = outcome.measured is not None and measured.low == measured.low
    numbers |= {name: getattr(outcome, name) if tested else None for name in ("p_holds", "p_fails")}
    return {
        "claim": key,
        "check": index,
        "expression": outcome.check.text,
        "minimum": outcome.check.minimum,
        "maximum": outcome.check.maximum,
        "published": outcome.published,
        "published_verdict": outcome.published_verdict,
        **{name: None if number != number else number for name, number in numbers.items()},
        "seeds": outcome.seeds,
        "verdict": say(outcome.verdict, track),
        "paper": " ".join(claim.paper),
        "remarks": " ".join(map(to_plain, outcome.remarks)),
        "published_text": _number("–" if outcome.published is None else f"{outcome.published:.4g}"),
        "measured_text": write_measured(outcome),
        "cells": [place._asdict() for place in outcome.check.places],
    }


def describe(judged: Mapping[str, tuple[Claim, list[Outcome]]], track: ResolvedTrack) -> dict[str, Any]:
    """Return all claims with their checks, and what is behind them: all that a reader of the verdicts needs."""
    claims = {
        key: {
            "statement": claim.statement,
            "paper": claim.paper,
            "quote": None if claim.quote is None else to_plain(claim.quote),
            "note": claim.note or claim.not_tested,
            "published_verdict": combine([outcome.published_verdict for outcome in outcomes]),
            "verdict": say(combine([outcome.verdict for outcome in outcomes]), track),
            "seeds": min((outcome.seeds for outcome in outcomes), default=0),
            "checks": [as_record(key, index, claim, outcome, track) for index, outcome in enumerate(outcomes)],
            "remarks": list(dict.fromkeys(to_plain(remark) for outcome in outcomes for remark in outcome.remarks)),
        }
        for key, (claim, outcomes) in judged.items()
    }
    comparable = track.declaration.comparable
    return {
        "track": track.name,
        "comparable": comparable,
        "about": f"Track {track.name}: {track.declaration.title.rstrip('.')}. "
        + (
            "Measured on the paper's data sets."
            if comparable
            else "Other data or shorter runs than the paper's: only signs are compared, sizes are not, and no verdict "
            "says that a claim about the paper's data holds or fails."
        ),
        "explanations": EXPLANATIONS,
        "remarks": REMARKS,
        "claims": claims,
    }


def write_measured(outcome: Outcome) -> str:
    """Write the measured quantity with its interval and number of seeds."""
    if outcome.measured is None:
        return "–"
    value, low, high = outcome.measured
    limits = f" [{low:.3g}, {high:.3g}]" if low == low else ""
    images = f"; images [{outcome.images.low:.3g}, {outcome.images.high:.3g}]" if outcome.images else ""
    return _number(f"{value:.3g}{limits}, n = {outcome.seeds}{images}")


def _number(text: str) -> str:
    return text.replace("-", "−")


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
    folder: Path = args.results / track.name
    values = pd.concat([collect_values(track, frame, scores), embedding_values(track, folder / "tables")])
    judge = Judge(track, tables, values)
    judged = {key: (claim, judge.outcomes(claim)) for key, claim in claims.items()}
    content = describe(judged, track)
    numbers = pd.DataFrame([check for claim in content["claims"].values() for check in claim["checks"]], dtype=object)
    numbers = numbers.drop(columns=["published_text", "measured_text", "cells"])
    for name, text in (
        ("claims.md", template("claims.md").render(content=content)),
        ("claims.csv", numbers.to_csv(index=False, lineterminator="\n")),
        ("claims.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n"),
    ):
        write_text(folder / "claims" / name, text)
        print(folder / "claims" / name)


if __name__ == "__main__":
    sys.exit(main())
