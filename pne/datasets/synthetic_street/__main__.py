"""Draw a SyntheticStreet data set: ``python -m pne.datasets.synthetic_street --variant street_city --out DIR``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pne.datasets.synthetic_street.store import write
from pne.datasets.synthetic_street.variants import VARIANTS
from pne.errors import reports_user_errors


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    result = argparse.ArgumentParser(prog="python -m pne.datasets.synthetic_street", description=__doc__)
    result.add_argument(
        "--variant", choices=[*VARIANTS, "all"], required=True, help="which data set; all: each in its folder below DIR"
    )
    result.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    result.add_argument("--seed", type=int, default=0, help="seed of the scenes (default: %(default)s)")
    return result


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Draw one variant, or all of them, unless they are there already."""
    args = parser().parse_args(argv)
    names = list(VARIANTS) if args.variant == "all" else [args.variant]
    for name in names:
        folder = args.out / name if args.variant == "all" else args.out
        state = "drawn" if write(name, folder, args.seed) else "already there"
        print(f"{folder}: {name} {state}")


if __name__ == "__main__":
    sys.exit(main())
