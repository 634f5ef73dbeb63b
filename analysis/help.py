"""List the targets of the workflow and the commands beside it, as ``templates/help.md`` names them."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.tables.layout import template
from pne.errors import reports_user_errors
from pne.spec.catalogue import read_catalogue


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """List targets, tables, tracks and commands."""
    parser = argparse.ArgumentParser(prog="python -m analysis.help", description=main.__doc__)
    parser.add_argument("--experiments", type=Path, default=Path("experiments"), help="folder of the declarations")
    print(template("help.md").render(catalogue=read_catalogue(parser.parse_args(argv).experiments)), end="")


if __name__ == "__main__":
    sys.exit(main())
