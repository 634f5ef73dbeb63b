"""Compute and draw figures: ``python -m analysis.figures STEP [NAME ...] --track TRACK``."""

import sys
from collections.abc import Sequence

from analysis.figures import choose, resolve_figures
from analysis.results import resolve, track_parser
from pne.errors import reports_user_errors

STEPS = {
    "list": "print the figures that the track offers",
    "select": "choose what to show by the figure's rule and store it",
    "map": "compute the t-SNE coordinates and store them",
    "draw": "draw from what is stored, and write the caption",
}


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Carry out one step for the named figures and print the files written."""
    parser = track_parser("python -m analysis.figures", "Compute and draw the figures of a track.")
    parser.add_argument("step", choices=STEPS, help="; ".join(f"{name}: {text}" for name, text in STEPS.items()))
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures (default: all that the track offers)")
    parser.add_argument("--method", default="sklearn", help="of map: sklearn or opentsne (default: %(default)s)")
    parser.add_argument("--per-class", type=int, default=100, help="of map: pixels of a class (default: %(default)s)")
    parser.add_argument(
        "--own-starts", action="store_true", help="of map: two networks begin at their own components, not the first's"
    )
    args = parser.parse_args(argv)
    track = resolve(args)
    figures = resolve_figures(track, args.experiments)
    names = args.names or [name for name, figure in figures.items() if figure.available]
    chosen = [choose(figures, name, track.name) for name in names]
    if args.step == "list":
        for figure in chosen:
            print(f"{figure.name}\t{figure.declaration.title}")
        return
    # Imported here: listing needs neither matplotlib nor scikit-learn.
    from analysis.figures import draw, selection, tsne

    for figure in chosen:
        if args.step == "draw":
            print(*draw.draw_figure(figure, track), sep="\n")
        elif args.step == "select":
            print(selection.select(figure, track))
        else:
            print(tsne.compute_map(figure, track, args.method, args.per_class, args.own_starts))


if __name__ == "__main__":
    sys.exit(main())
