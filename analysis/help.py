"""List the targets of the workflow and the commands beside it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pne.errors import reports_user_errors
from pne.spec.catalogue import Catalogue, read_catalogue

TARGETS = {
    "tables": "every table of the track: published and measured side by side (the default)",
    "table_<name>": "one table, training only the runs that it needs",
    "claims": "a verdict on each claim of the paper",
    "figures": "every figure; figure_<name> for one",
    "published": "the paper's tables from its printed numbers alone",
    "data": "the data sets of the track, drawn or examined",
}
COMMANDS = {
    "python -m analysis.plan": "runs per table, shared, finished, stale, and the hours to come",
    "python -m analysis.status": "finished, running with time left, failed with the last error",
    "python -m analysis.runs": "run ids with table and row",
    "python -m analysis.tables": "write tables from what is finished, training nothing",
    "python -m analysis.claims": "write the verdicts from what is finished",
    "python -m pne.spec check": "check all declarations",
    "python -m pne.train SPEC": "train one run by hand; its spec.yaml comes from python -m pne.spec write",
}


def describe(catalogue: Catalogue) -> str:
    """Write targets, tables, tracks and commands."""
    tables = {
        name: f"{f'Table {table.number}' if table.number else 'own'}: {table.question}"
        for name, table in catalogue.tables.items()
    }
    sections = {
        "Targets: snakemake --cores N TARGET ... --config track=NAME data_root=FOLDER": TARGETS,
        "Tables (experiments/tables)": tables,
        "Tracks (experiments/tracks)": {name: track.description for name, track in catalogue.tracks.items()},
        "Commands, safe while a workflow runs; each has --help and takes --track NAME": COMMANDS,
    }
    width = max(map(len, TARGETS | COMMANDS))
    texts = ("\n".join(f"  {name:<{width}}  {text}" for name, text in entries.items()) for entries in sections.values())
    return "\n\n".join(f"{title}\n\n{text}" for title, text in zip(sections, texts, strict=True))


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """List targets, tables, tracks and commands."""
    parser = argparse.ArgumentParser(prog="python -m analysis.help", description=main.__doc__)
    parser.add_argument("--experiments", type=Path, default=Path("experiments"), help="folder of the declarations")
    print(describe(read_catalogue(parser.parse_args(argv).experiments)))


if __name__ == "__main__":
    sys.exit(main())
