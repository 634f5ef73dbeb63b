"""Store what finished runs say about single pixels: ``python -m pne.extract SPEC [SPEC ...]``.

Without a selection, the features of a class-balanced sample of pixels, one file per run. With one, predicted images or
the pairs that the loss draws. Every file names the run and the hash of the weights, which are checked first.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pne.console import positive
from pne.engine.command import StopRequest, run_each, told_out_of_memory
from pne.errors import UserError, reports_user_errors
from pne.files import sha256


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    result = argparse.ArgumentParser(prog="python -m pne.extract", description=__doc__)
    result.add_argument("specs", type=Path, nargs="+", metavar="SPEC", help="spec.yaml of finished runs")
    result.add_argument("--per-class", type=positive, default=200, help="most pixels of a class (default: %(default)s)")
    result.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    chosen = result.add_mutually_exclusive_group()
    chosen.add_argument("--predictions", type=Path, metavar="JSON", help="predict these selected images instead")
    chosen.add_argument("--pairs", type=Path, metavar="JSON", help="draw the pairs of this selected confusion instead")
    result.add_argument(
        "--out", type=Path, metavar="DIR", help="folder to write to (default for features: features/ of the track)"
    )
    return result


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Extract from each run in turn and write one file each, ``<run id>.npz``; return the exit status."""
    args = parser().parse_args(argv)
    if (args.predictions or args.pairs) and not args.out:
        raise UserError("--out: missing; --predictions and --pairs need the folder to write to")
    # Imported here: --help needs no torch.
    from pne.extract.archives import ConfusionSelection, ImageSelection, read_selection
    from pne.extract.images import extract_pairs, extract_predictions
    from pne.extract.network import Network, extract_features

    @told_out_of_memory("in the extraction", "a GPU with more memory, or the CPU (--config device=cpu)")
    def extract(spec: Path) -> None:
        network = Network(spec)
        if args.predictions:
            selection = read_selection(args.predictions, ImageSelection)
            archive = extract_predictions(network, [image.index for image in selection.images])
        elif args.pairs:
            archive = extract_pairs(network, read_selection(args.pairs, ConfusionSelection))
        else:
            archive = extract_features(network, args.per_class, args.seed)
        if selected := args.predictions or args.pairs:
            archive.about["selection_sha256"] = sha256(selected)
        folder = args.out or Path(network.run.runtime.results) / "features"
        path = folder / f"{network.run.run}.npz"
        archive.write(path)
        print(path)

    return run_each(args.specs, extract, StopRequest(), keep_going=False)


if __name__ == "__main__":
    sys.exit(main())
