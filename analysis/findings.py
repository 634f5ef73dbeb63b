"""Does PNE help? ``docs/findings.md``, its plot and the README's part of it, made from the archive alone."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.figures.style import BLUE, GREY, PAGE, new_figure, paper_style, save
from analysis.results import archived_tracks, read_for_comparison
from analysis.tables.layout import print_measured, render, template
from analysis.tables.values import collect_values
from analysis.uncertainty import (
    FEWEST_SEEDS,
    MARGIN,
    clip_of,
    detectable,
    difference_p,
    holm,
    miou,
    over_seeds,
    read,
    read_counts,
)
from pne.errors import reports_user_errors
from pne.files import write_text
from pne.results import TrainResult, read_result_of
from pne.spec import ResolvedTable, ResolvedTrack, Run
from pne.spec.catalogue import read_catalogue
from pne.spec.resolve import restricted
from pne.spec.schema import Table

TABLE = "arms"
# Pairs of rows that are compared, and where the paper prints by how much the first one is better: a table and two rows.
PRIMARY = {
    ("pne", "base"): (("contrast_form", "pne_r50", "base_r50"), ("contrast_form", "pne_r101", "base_r101")),
    ("pne", "asymmetric"): (("construction", "pne_ias_cn", "asymmetric_ias_cn"),),
    ("pne", "ohem"): (),
}
AGAINST_BASE: dict[tuple[str, str], tuple] = {("asymmetric", "base"): (), ("ohem", "base"): ()}
TEMPLATE, DOCUMENT, PLOT = "findings.md", Path("docs/findings.md"), Path("docs/images/findings.png")
README, MARKS = Path("README.md"), ("<!-- findings -->\n", "<!-- end of findings -->\n")


def find(track: ResolvedTrack, entries: Sequence[str], paper: Mapping[str, Table]) -> dict[str, Any]:
    """Say what the archive says of one track, of the seeds with which it holds every arm.

    Parameters
    ----------
    track : ResolvedTrack
        Its source is the archive.
    entries : sequence of str
        Names of the track's folders there.
    paper : mapping of str to Table
        All declared tables.

    Returns
    -------
    dict
        The track, its seeds that count and, as incomplete, those that an arm lacks; primary and against_base from
        `compare`, for `PRIMARY` and `AGAINST_BASE`; described from `describe`; origins from `originate`; as table that
        of the arms in Markdown, with the footnotes of what is stale, mixed or of other origin; as foreign the entries
        that are none of the track's runs as it is declared now, which are not counted.
    """
    foreign = sorted(set(entries) - set(track.runs))
    track, frame = read_for_comparison(restricted(track, [TABLE]))
    arms, values = track.tables[TABLE], collect_values(track, frame)
    records = {record["run"]: record for record in frame[frame["state"] == "finished"].to_dict("records")}
    measured = [{seed for seed, run in row.runs.items() if run in records} for row in arms.rows.values()]
    seeds = sorted(set.intersection(*measured))
    of_arms = {key: [records[row.runs[seed]] for seed in seeds] for key, row in arms.rows.items()}
    return {
        "track": track,
        "seeds": seeds,
        "incomplete": sorted(set.union(*measured) - set(seeds)),
        "primary": compare(arms, of_arms, PRIMARY, paper),
        "against_base": compare(arms, of_arms, AGAINST_BASE, paper),
        "described": describe(of_arms) if seeds else [],
        "origins": originate(arms, [track.runs[run] for run in records]),
        "table": render(print_measured(arms, track, values), "md", quoted_italic=True),
        "foreign": foreign,
    }


def compare(
    arms: ResolvedTable,
    of_arms: Mapping[str, Sequence[Mapping[str, Any]]],
    pairs: Mapping[tuple[str, str], Sequence[tuple[str, str, str]]],
    paper: Mapping[str, Table],
) -> list[dict[str, Any]]:
    """Compare pairs of arms, as one family.

    Parameters
    ----------
    arms : ResolvedTable
    of_arms : mapping of str to sequence of mapping
        By row, what was read of its run with each of the same seeds.
    pairs : mapping
        As `PRIMARY`.
    paper : mapping of str to Table

    Returns
    -------
    list of dict
        Per pair, in percentage points of mIoU: title, differences (one per seed), estimate, low and high (95 %, over
        seeds; NaN with too few), deviation of the differences, detectable (found in 80 % of cases), p (two-sided, after
        Holm), reading (see `analysis.uncertainty.Reading`), paper (its gains).
    """
    scores = {key: np.array([record["miou"] for record in records]) for key, records in of_arms.items()}
    differences = [scores[ours] - scores[other] for ours, other in pairs]
    estimates = [over_seeds(of_seeds if of_seeds.size else [np.nan]) for of_seeds in differences]
    p, readings = holm([difference_p(estimate) for estimate in estimates]), read(estimates)
    compared = []
    for index, ((ours, other), places) in enumerate(pairs.items()):
        of_seeds, rows = differences[index], arms.declaration.rows
        deviation = of_seeds.std(ddof=1) if len(of_seeds) >= FEWEST_SEEDS else np.nan
        compared.append(
            {
                "title": f"{rows[ours].label} − {rows[other].label}",
                **estimates[index].interval()._asdict(),
                "differences": of_seeds.tolist(),
                "deviation": deviation,
                "detectable": detectable(len(of_seeds), deviation, len(pairs)),
                "p": p[index],
                "reading": str(readings[index]).replace("smaller", f"smaller than {MARGIN}"),
                "paper": [
                    np.subtract(*(paper[table].rows[row].published["miou"].value for row in pair))
                    for table, *pair in places
                ],
            }
        )
    return compared


def describe(of_arms: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Summarise what has no verdict: mIoU of each clip, boundaries, calibration, classes.

    Parameters
    ----------
    of_arms : mapping
        As in `compare`, of one seed at least.

    Returns
    -------
    list of dict
        Per quantity: title, values (mean and deviation over seeds of each arm, percent), difference (the same of the
        first of `PRIMARY`).
    """
    found = {key: [_quantities(record) for record in records] for key, records in of_arms.items()}
    ours, other = next(iter(PRIMARY))
    described = []
    for title in found[ours][0]:
        values = {key: np.array([one[title] for one in of_seeds], np.float64) for key, of_seeds in found.items()}
        columns = [*values.values(), values[ours] - values[other]]
        *each, difference = [(one.mean(), one.std(ddof=1) if len(one) > 1 else np.nan) for one in columns]
        described.append({"title": title, "values": each, "difference": difference})
    return described


def _quantities(record: Mapping[str, Any]) -> dict[str, float | None]:
    counts = read_counts(record["confusion"])
    clips = [clip_of(name) for name in counts.names]
    return {
        **{f"mIoU, clip {one}": miou(counts, [[clip == one for clip in clips]])[0] for one in dict.fromkeys(clips)},
        "boundary IoU": record["boundary_iou"],
        "calibration error": record["calibration_error"],
        **{f"IoU, {name}": value for name, value in record["class_iou"].items()},
    }


def originate(arms: ResolvedTable, finished: Sequence[Run]) -> list[dict[str, Any]]:
    """Say per arm what its finished runs cost, and how and where they were made: distinct values, in order."""
    origins = []
    for row in arms.rows.values():
        runs = [run for run in finished if run.run in row.runs.values()]
        results = [read_result_of(run, "train", TrainResult) for run in runs]
        made = [result.provenance for result in results]
        texts = {
            "weight": [f"{run.contrast['weight']:g}" for run in runs if run.contrast],
            "iterations": [str(result.iterations) for result in results],
            "threads": [str(one.threads or "–") for one in made],
            "cpu": [one.device.removeprefix("cpu: ") for one in made],
            "torch": [one.versions.get("torch", "–") for one in made],
            "commit": [f"{one.git_commit or '–':.10}" for one in made],
            "code": [f"{one.code_sha256:.12}" for one in made],
        }
        origins.append(
            {
                "label": row.declaration.label,
                "runs": len(runs),
                "hours": sum(result.iterations * result.time_s for result in results) / 3600,
                **{name: ", ".join(sorted(set(found))) or "–" for name, found in texts.items()},
            }
        )
    return origins


def plot(findings: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw every seed as a point, with mean and interval; a line is what the paper gains."""
    with paper_style():
        figure = new_figure(PAGE, 2.2)
        for axes, finding in zip(figure.subplots(1, len(findings), squeeze=False)[0], findings, strict=True):
            for x, contrast in enumerate(finding["primary"]):
                mean, points = contrast["estimate"], contrast["differences"]
                ends = [[mean - contrast["low"]], [contrast["high"] - mean]]
                axes.hlines(contrast["paper"], x - 0.3, x + 0.3, color=GREY, linestyle="--")
                axes.plot([x - 0.08] * len(points), points, "o", color=BLUE, alpha=0.5)
                axes.errorbar(x + 0.08, mean, ends, fmt="_", color="black", capsize=3)
            axes.axhline(0, color="black", linewidth=0.6)
            axes.set_xlim(-0.5, len(finding["primary"]) - 0.5)
            axes.set_xticks(range(len(finding["primary"])), [contrast["title"] for contrast in finding["primary"]])
            axes.set(title=finding["track"].declaration.title, ylabel="difference of mIoU (points)")
        save(figure, [path])


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Write the files below the current folder and print their paths."""
    parser = argparse.ArgumentParser(prog="python -m analysis.findings", description=main.__doc__)
    parser.add_argument("--experiments", type=Path, default=Path("experiments"), help="folder of the declarations")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder that holds archive/")
    args = parser.parse_args(argv)
    catalogue, findings = read_catalogue(args.experiments), []
    for track in archived_tracks(args.experiments, args.results, catalogue=catalogue, studies=True):
        entries = {path.name for path in (args.results / "archive" / track.name).iterdir()}
        if entries & {run for row in track.tables[TABLE].rows.values() for run in row.runs.values()}:
            findings.append(find(track, sorted(entries), catalogue.tables))
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
