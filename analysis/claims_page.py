"""The report's page of the claims: overview, checks with rounded numbers, and the runs behind them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.pages import template
from analysis.run_details import RunDetails, describe_run
from pne.declaration.resolved import ResolvedTrack
from pne.errors import UserError


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
    runs: dict[str, RunDetails] = {}
    for claim in content["claims"].values():
        for check in claim["checks"]:
            for _, anchor, run in _runs_of(check, track):
                if anchor not in runs:
                    runs[anchor] = describe_run(track.runs[run])

    def links_of(check: Mapping[str, Any]) -> list[tuple[str, str]]:
        return [(text, anchor) for text, anchor, _ in _runs_of(check, track)]

    def remarks_of(claim: Mapping[str, Any]) -> list[str]:
        return list(dict.fromkeys(check["remarks"] for check in claim["checks"] if check["remarks"]))

    return template("claims.html").render(content=content, runs=runs, links_of=links_of, remarks_of=remarks_of)


def _runs_of(check: Mapping[str, Any], track: ResolvedTrack) -> list[tuple[str, str, str]]:
    """Return text and anchor of the link, and the run, of everything that a check is computed from."""
    found = []
    for cell in check["cells"]:
        table = track.tables.get(cell["table"])
        row = table.rows.get(cell["row"]) if table is not None and table.available else None
        for seed, run in (row.runs if row is not None else {}).items():
            if track.runs[run].directory.exists():
                text = cell["row"] if len(row.runs) == 1 else f"{cell['row']} seed {seed}"
                found.append((text, f"run-{run}", run))
    return found
