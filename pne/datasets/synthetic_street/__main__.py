"""Draw a SyntheticStreet data set: ``python -m pne.datasets.synthetic_street --variant street_city --out DIR``.

It is written once, complete or not at all, and recognised again.
"""

import argparse
import hashlib
import json
import shutil
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pne.datasets.files import opened
from pne.datasets.synthetic_street import IGNORE_INDEX, SPLITS, VARIANTS, Variant, variant
from pne.datasets.synthetic_street.scene import HEIGHT, WIDTH, draw_scene
from pne.errors import UserError, reports_user_errors
from pne.files import write_text

META = "meta.json"


def write(name: str, out: Path | str, seed: int = 0) -> bool:
    """Draw a variant into a folder, in mmsegmentation's custom layout; do nothing if it is there already.

    ``out/img_dir/<split>/*.png`` holds RGB images, ``out/ann_dir/<split>/*.png`` palette images with the class index
    and 255 to ignore, ``out/meta.json`` classes, palette and the fingerprint of all pixels. The folder is built aside
    and renamed, so that it is never seen unfinished.

    Parameters
    ----------
    name : str
        Name of the variant.
    out : Path
        The folder to make.
    seed : int
        Seed of the scenes.

    Returns
    -------
    bool
        True if the data set was drawn, False if it was found whole.

    Raises
    ------
    UserError
        If the folder holds something else, or a damaged or different data set.
    """
    kind, out = variant(name), Path(out)
    if out.is_dir() and any(out.iterdir()):
        _expect(kind, out, seed)
        return False
    aside = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    try:
        aside.mkdir(parents=True)
        _draw(kind, aside, seed)
        aside.replace(out)  # onto nothing or an empty folder
    except OSError as error:
        if not (out.is_dir() and any(out.iterdir())):
            remedy = "free space, mend permissions or choose another folder"
            raise UserError(f"{out}: cannot be written ({error.strerror}); {remedy}") from error
        _expect(kind, out, seed)  # another process was faster
        return False
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return True


def verify(out: Path | str) -> str:
    """Compare the pixels in a folder with the fingerprint that was noted when they were drawn.

    Returns
    -------
    str
        The fingerprint: sha256 in hexadecimal over names and pixels, independent of platform and PNG compression.

    Raises
    ------
    UserError
        If the folder is no SyntheticStreet data set, or a file is missing, additional, unreadable or changed.
    """
    out = Path(out)
    meta = _read_meta(out)
    files = meta["files"]
    found = {path.relative_to(out).as_posix() for d in ("img_dir", "ann_dir") for path in out.glob(f"{d}/*/*")}
    if wrong := sorted(found.symmetric_difference(files)):
        what = "is missing" if wrong[0] in files else "does not belong here"
        raise UserError(f"{out}: {wrong[0]} {what} ({len(wrong)} such files); {_MEND}")
    for name, content in sorted(files.items()):
        with opened(out / name, _MEND) as picture:
            pixels = np.asarray(picture)
        if _digest(pixels) != content:
            raise UserError(f"{out}: the pixels of {name} are not those that were drawn; {_MEND}")
    if _fingerprint(files) != meta["fingerprint"]:
        raise UserError(f"{out}: {META} was changed: its fingerprint does not fit its files; {_MEND}")
    return meta["fingerprint"]


_MEND = "remove the folder and draw it again with python -m pne.datasets.synthetic_street"


def _read_meta(out: Path) -> dict:
    path = out / META
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        if all(isinstance(meta[key], kind) for key, kind in (("files", dict), ("recipe", dict), ("fingerprint", str))):
            return meta
    except FileNotFoundError as error:
        raise UserError(
            f"{out}: expected a SyntheticStreet data set with {META}, found none; name an empty or new folder"
        ) from error
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UserError(f"{path}: is not readable as the description of a SyntheticStreet data set; {_MEND}")


def _expect(kind: Variant, out: Path, seed: int) -> None:
    found, wanted = _read_meta(out)["recipe"], _recipe(kind, seed)
    if found != wanted:
        changed = [
            f"{key} is {found.get(key)!r}, wanted {value!r}" for key, value in wanted.items() if found.get(key) != value
        ]
        raise UserError(
            f"{out}: holds another SyntheticStreet data set ({'; '.join(changed)}); name another folder, or {_MEND}"
        )
    verify(out)


def _recipe(kind: Variant, seed: int) -> dict:
    statistics = repr(sorted((k, v) for k, v in vars(kind).items() if k not in ("parts", "palette")))
    return {
        "variant": kind.name,
        "seed": seed,
        "drawing": _digest(np.dstack(draw_scene(kind, SPLITS[0], 0, seed))),  # changes with the drawing code
        "statistics": hashlib.sha256(statistics.encode()).hexdigest()[:16],
    }


def _draw(kind: Variant, folder: Path, seed: int) -> None:
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(kind.palette)] = kind.palette
    files: dict[str, str] = {}
    counts = np.zeros((len(SPLITS), 256), np.int64)
    for row, split in enumerate(SPLITS):
        for part in ("img_dir", "ann_dir"):
            (folder / part / split).mkdir(parents=True)
        for index in range(getattr(kind, split)):
            image, label = draw_scene(kind, split, index, seed)
            counts[row] += np.bincount(label.ravel(), minlength=256)
            pictures = {"img_dir": Image.fromarray(image), "ann_dir": Image.fromarray(label)}
            pictures["ann_dir"].putpalette(palette.tobytes())
            for part, array in (("img_dir", image), ("ann_dir", label)):
                name = f"{part}/{split}/{split}_{index:04d}.png"
                pictures[part].save(folder / name)
                files[name] = _digest(array)
    meta = {
        "name": kind.name,
        "recipe": _recipe(kind, seed),
        "fingerprint": _fingerprint(files),
        "image_size_wh": [WIDTH, HEIGHT],
        "num_classes": len(kind.classes),
        "ignore_index": IGNORE_INDEX,
        "classes": kind.classes,
        "palette_rgb": kind.palette,
        "img_suffix": ".png",
        "seg_map_suffix": ".png",
        "reduce_zero_label": False,
        "pixels": {
            split: {**dict(zip(kind.classes, map(int, row), strict=False)), "void": int(row[IGNORE_INDEX])}
            for split, row in zip(SPLITS, counts, strict=True)
        },
        "files": files,
    }
    write_text(folder / META, json.dumps(meta, indent=1) + "\n")


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(f"{array.shape} {array.dtype}".encode() + array.tobytes()).hexdigest()[:32]


def _fingerprint(files: dict[str, str]) -> str:
    return hashlib.sha256("".join(f"{name} {files[name]}\n" for name in sorted(files)).encode()).hexdigest()


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
