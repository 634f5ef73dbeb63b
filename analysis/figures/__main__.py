"""Compute and draw figures: ``python -m analysis.figures STEP [NAME ...] --track TRACK``."""

import argparse
import sys
from collections.abc import Sequence

from analysis.command import resolve, track_parser
from analysis.figures.declaration import choose, resolve_figures
from pne.errors import reports_user_errors

STEPS = {
    "list": "print the figures that the track offers",
    "select": "choose what to show by the figure's rule and store it",
    "map": "compute the t-SNE coordinates and store them",
    "draw": "draw from what is stored, and write the caption",
    "embedding": "measure the stored features and print table embedding",
}


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    result = track_parser("python -m analysis.figures", "Compute and draw the figures of a track.")
    result.add_argument("step", choices=STEPS, help="; ".join(f"{name}: {text}" for name, text in STEPS.items()))
    result.add_argument("names", nargs="*", metavar="NAME", help="figures (default: all that the track offers)")
    result.add_argument("--method", default="sklearn", help="of map: sklearn or opentsne (default: %(default)s)")
    result.add_argument("--per-class", type=int, default=100, help="of map: pixels of a class (default: %(default)s)")
    return result


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Carry out one step for the named figures and print the files written."""
    args = parser().parse_args(argv)
    track = resolve(args)
    figures = resolve_figures(track, args.experiments)
    names = args.names or [name for name, figure in figures.items() if figure.available]
    chosen = [choose(figures, name, track.name) for name in names]
    if args.step == "embedding":
        from analysis.figures.embedding import write_embedding_table

        for path in write_embedding_table(track):
            print(path)
        return
    if args.step == "list":
        for figure in chosen:
            print(f"{figure.name}\t{figure.declaration.title}")
        return
    # Imported here: listing needs neither matplotlib nor scikit-learn.
    if args.step == "draw":
        from analysis.figures.draw import draw_figure

        for figure in chosen:
            for path in draw_figure(figure, track):
                print(path)
        return
    from analysis.figures.compute import compute_map, select

    for figure in chosen:
        print(
            select(figure, track) if args.step == "select" else compute_map(figure, track, args.method, args.per_class)
        )


if __name__ == "__main__":
    sys.exit(main())
