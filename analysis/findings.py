"""Does PNE help? ``docs/findings.md``, its plot and the README's part of it, made from the archive alone."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.figures.style import BLUE, GREY, PAGE, new_figure, paper_style, save
from analysis.results import read_for_comparison
from analysis.tables.layout import print_measured, render, template
from analysis.tables.values import collect_values, series_of
from analysis.uncertainty import FEWEST_SEEDS, MARGIN, difference_p, holm, over_seeds, read
from pne.errors import reports_user_errors
from pne.files import write_text
from pne.spec import ResolvedTrack, load_track
from pne.spec.catalogue import read_catalogue
from pne.spec.resolve import restricted
from pne.spec.schema import Table

TABLE, OURS = "arms", "pne"
# What PNE is compared with; and the table and rows whose printed values say by how much the paper's PNE is better.
OTHERS = {
    "base": (("contrast_form", "pne_r50", "base_r50"), ("contrast_form", "pne_r101", "base_r101")),
    "asymmetric": (("construction", "pne_ias_cn", "asymmetric_ias_cn"),),
    "ohem": (),
}
TEMPLATE, DOCUMENT, PLOT = "findings.md", Path("docs/findings.md"), Path("docs/images/findings.png")
README, MARKS = Path("README.md"), ("<!-- findings -->\n", "<!-- end of findings -->\n")


@dataclass(frozen=True)
class Finding:
    """What the archive says of one track.

    Attributes
    ----------
    track : ResolvedTrack
    contrasts : list of dict
        One for each of `OTHERS`, in percentage points of mIoU: title, differences (one per common seed), estimate, low
        and high (95 %, over seeds; NaN with too few), p (two-sided, after Holm over the track), reading (see
        `analysis.uncertainty.Reading`), paper (its gains).
    table : str
        The table of arms in Markdown, with the footnotes of what is stale, mixed or of other origin.
    commits : list of str
        That the results come from.
    foreign : list of str
        Entries that are none of the track's runs as it is declared now; they are not counted.
    """

    track: ResolvedTrack
    contrasts: list[dict[str, Any]]
    table: str
    commits: list[str]
    foreign: list[str]


def find(track: ResolvedTrack, entries: Sequence[str], paper: Mapping[str, Table]) -> Finding:
    """Compare the arms of a track.

    Parameters
    ----------
    track : ResolvedTrack
        Its source is the archive.
    entries : sequence of str
        Names of the track's folders there.
    paper : mapping of str to Table
        All declared tables.
    """
    foreign = sorted(set(entries) - set(track.runs))
    track, frame = read_for_comparison(restricted(track, [TABLE]))
    arms, values = track.tables[TABLE], collect_values(track, frame)
    scores = {key: series_of(of_row).by_seed for key, of_row in values[values["column"] == "miou"].groupby("row")}
    differences = [[scores[OURS][s] - scores[key][s] for s in scores[OURS] if s in scores[key]] for key in OTHERS]
    estimates = [over_seeds(of_seeds or [np.nan]) for of_seeds in differences]
    p, readings = holm([difference_p(estimate) for estimate in estimates]), read(estimates)
    rows = [
        {
            "title": " − ".join(arms.declaration.rows[row].label for row in (OURS, key)),
            **estimates[index].interval()._asdict(),
            "differences": differences[index],
            "p": p[index],
            "reading": str(readings[index]).replace("smaller", f"smaller than {MARGIN}"),
            "paper": [
                np.subtract(*(paper[table].rows[row].published["miou"].value for row in pair))
                for table, *pair in places
            ],
        }
        for index, (key, places) in enumerate(OTHERS.items())
    ]
    table, commits = print_measured(arms, track, values), sorted(set(frame["git_commit"].dropna()))
    return Finding(track, rows, render(table, "md", quoted_italic=True), commits, foreign)


def plot(findings: Sequence[Finding], path: Path) -> None:
    """Draw every seed as a point, with mean and interval; a line is what the paper gains."""
    with paper_style():
        figure = new_figure(PAGE, 2.2)
        for axes, finding in zip(figure.subplots(1, len(findings), squeeze=False)[0], findings, strict=True):
            for x, contrast in enumerate(finding.contrasts):
                mean, points = contrast["estimate"], contrast["differences"]
                ends = [[mean - contrast["low"]], [contrast["high"] - mean]]
                axes.hlines(contrast["paper"], x - 0.3, x + 0.3, color=GREY, linestyle="--")
                axes.plot([x - 0.08] * len(points), points, "o", color=BLUE, alpha=0.5)
                axes.errorbar(x + 0.08, mean, ends, fmt="_", color="black", capsize=3)
            axes.axhline(0, color="black", linewidth=0.6)
            axes.set_xticks(range(len(finding.contrasts)), [contrast["title"] for contrast in finding.contrasts])
            axes.set(title=finding.track.declaration.title, ylabel="difference of mIoU (points)")
        save(figure, [path])


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Write the files below the current folder and print their paths."""
    parser = argparse.ArgumentParser(prog="python -m analysis.findings", description=main.__doc__)
    parser.add_argument("--experiments", type=Path, default=Path("experiments"), help="folder of the declarations")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder that holds archive/")
    args = parser.parse_args(argv)
    catalogue, findings = read_catalogue(args.experiments), []
    for folder in sorted(path for path in args.results.glob("archive/*") if path.is_dir()):
        track = load_track(folder.name, results=args.results, runtime={"source": "archive"}, catalogue=catalogue)
        if track.tables[TABLE].available:
            findings.append(find(track, [path.name for path in folder.iterdir()], catalogue.tables))
    about = {"findings": findings, "plot": PLOT.relative_to(DOCUMENT.parent), "fewest": FEWEST_SEEDS}
    before, rest = README.read_text(encoding="utf-8").split(MARKS[0])
    short = template(TEMPLATE).make_module(about).short(PLOT)
    write_text(README, f"{before}{MARKS[0]}{short}{MARKS[1]}{rest.split(MARKS[1])[1]}")
    write_text(DOCUMENT, template(TEMPLATE).render(about))
    if findings:
        plot(findings, PLOT)
    print(DOCUMENT, README, *[PLOT] * bool(findings), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
