"""Predict the test images of Cityscapes, which have no labels, and pack a PNG of label ids of each for the server.

The server looks for ``<city>_<sequence>_<frame>*.png``, in any folder, exactly one per image, as large as the image
(`getPrediction` of evaluation/evalPixelLevelSemanticLabeling.py, github.com/mcordts/cityscapesScripts).
"""

import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mmcv.transforms import BaseTransform
from mmseg.registry import TRANSFORMS
from pydantic import Field
from torch import nn

from pne.console import say, utc_now
from pne.datasets.files import save_label
from pne.datasets.fingerprint import fingerprint
from pne.datasets.layouts import layout
from pne.datasets.prepare import LABEL_IDS
from pne.engine.command import StopRequest, is_of
from pne.engine.inference import Views, open_images, predict, predicting
from pne.engine.processes import Processes
from pne.engine.provenance import describe, running_code
from pne.engine.weights import load_trained
from pne.errors import UserError
from pne.files import sha256, write_text, written_aside
from pne.results import Provenance
from pne.spec import read_spec
from pne.spec.schema import Strict

NAME = re.compile(r"(?P<frame>[a-z-]+_\d{6}_\d{6})(_leftImg8bit)?")
REPORT_EVERY = 100


class Submission(Strict):
    """``<run>.json`` beside the archive: where its predictions come from."""

    run: str
    evaluation: str = Field(description="How it was predicted: single_scale or multi_scale_flip.")
    bfloat16: bool
    images: int = Field(ge=1)
    weights_sha256: str
    archive_sha256: str
    provenance: Provenance


def archive_name(image: str) -> str:
    """Return the name of the prediction of an image.

    Raises
    ------
    UserError
        If the image is not named as Cityscapes names its images.

    Examples
    --------
    >>> archive_name("berlin_000000_000019_leftImg8bit")
    'berlin_000000_000019_labelIds.png'
    """
    found = NAME.fullmatch(image)
    if found is None:
        raise UserError(f"{image}: expected <city>_<6 digits>_<6 digits>_leftImg8bit; the server knows no other images")
    return f"{found['frame']}_labelIds.png"


def find_images(root: Path, subset: bool = False) -> list[Path]:
    """List the images of the test split, in the order of their names.

    Parameters
    ----------
    root : Path
        Folder of the data set.
    subset : bool
        Whether a part of the split will do.

    Raises
    ------
    UserError
        If there is none, or not all of the official split.
    """
    cityscapes = layout("cityscapes")
    split = cityscapes.splits["test"]
    images = sorted((root / split.images).rglob(f"*{cityscapes.image_suffix}"))
    if not images:
        raise UserError(
            f"{root}: expected {split.images}/<city>/*{cityscapes.image_suffix}, found none; unpack "
            "leftImg8bit_trainvaltest.zip of cityscapes-dataset.com there"
        )
    if len(images) != split.count and not subset:
        raise UserError(
            f"{root}: expected the {split.count} images of the test split in {split.images}, found {len(images)}; the "
            "server refuses an incomplete archive: complete the download (--subset writes one for a look)"
        )
    return images


@TRANSFORMS.register_module()
class LoadBlankLabels(BaseTransform):
    """Give an image labels of its own size that say nothing, so that predictions know the size to have."""

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        """Add ``gt_seg_map``, (H, W), uint8, zeros."""
        results["gt_seg_map"] = np.zeros(results["ori_shape"], np.uint8)
        results.setdefault("seg_fields", []).append("gt_seg_map")
        return results


class Settings(NamedTuple):
    """What the command line adds to a spec."""

    evaluation: str = "multi_scale_flip"
    bfloat16: bool = False
    subset: bool = False

    @property
    def deviations(self) -> tuple[str, ...]:
        """Names of what differs from an archive as the server is sent it."""
        default = Settings()
        evaluation = () if self.evaluation == default.evaluation else (self.evaluation,)
        return evaluation + tuple(name for name in ("bfloat16", "subset") if getattr(self, name))


def submit_spec(path: Path, settings: Settings, processes: Processes, request: StopRequest) -> None:
    """Write ``submissions/<run>.zip`` and, beside it, ``<run>.json`` that says where it comes from.

    With other settings than the default ones they are named after these: ``<run>.single_scale.zip``.

    Parameters
    ----------
    path : Path
        ``spec.yaml`` of a finished run on Cityscapes.
    settings : Settings
        From the command line.
    processes : Processes
        Share the images; the first one packs them.
    request : StopRequest
        A signal stops between two images; those predicted are kept for the next call.

    Raises
    ------
    UserError
        If the run is of another data set or has not finished, its weights are missing, or the test split is not whole.
    """
    run = read_spec(path)
    is_of(run, path)
    if run.layout != "cityscapes":
        raise UserError(f"{path}: trained on {run.dataset_title}; the server takes results on Cityscapes alone")
    images = find_images(run.data_directory, settings.subset)
    names = [archive_name(image.stem) for image in images]
    started, code = utc_now(), running_code(run)
    model, config, trained = load_trained(run, path, processes.device)
    # Named after all that the pictures depend on, so that none of another model is taken for one of this.
    kind = f"{settings.evaluation}-bfloat16" if settings.bfloat16 else settings.evaluation
    folder = run.work_directory / f"submission-{kind}-{trained.weights_sha256[:12]}"
    write_pictures(model, config, folder, settings, processes, between=request.check)
    processes.wait()
    if processes.is_first:
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise RuntimeError(f"{folder}: {len(missing)} predictions were not written, {missing[0]} first")
        archive = Path(run.runtime.results) / "submissions" / ".".join([run.run, *settings.deviations, "zip"])
        # PNG is compressed already. All dates are the same, so that equal pictures give equal bytes.
        with written_aside(archive) as aside, zipfile.ZipFile(aside, "w", zipfile.ZIP_STORED) as pack:
            for name in names:
                pack.writestr(zipfile.ZipInfo(name), (folder / name).read_bytes())
        data = fingerprint(run.layout, run.data_directory)
        about = Submission(
            run=run.run,
            evaluation=settings.evaluation,
            bfloat16=settings.bfloat16,
            images=len(names),
            weights_sha256=trained.weights_sha256,
            archive_sha256=sha256(archive),
            provenance=describe(run, config, processes, dataset_fingerprint=data, started=started, code=code),
        )
        write_text(archive.with_suffix(".json"), about.model_dump_json(indent=1) + "\n")
        shutil.rmtree(folder)
        say(f"{archive}: {len(names)} predictions, {archive.stat().st_size / 2**20:.1f} MiB")
    processes.wait()


def write_pictures(
    model: nn.Module,
    config: Mapping[str, Any],
    folder: Path,
    settings: Settings,
    processes: Processes,
    between: Callable[[], None],
) -> None:
    """Write a picture of label ids for each test image that has none yet.

    Parameters
    ----------
    model : BaseSegmentor
        In evaluation mode, on the device of ``processes``.
    config : mapping
        Prepared config; the pipeline of its ``test_dataloader`` is what images go through.
    folder : Path
        Where pictures are written.
    settings : Settings
    processes : Processes
        Share the images.
    between : callable
        Called between images; may raise to stop.
    """
    loader = config["test_dataloader"]
    images = open_images(unlabelled(loader["dataset"]), settings.evaluation)
    about = images.dataset if isinstance(images, Views) else images
    targets = [folder / archive_name(Path(about.get_data_info(index)["img_path"]).stem) for index in range(len(images))]
    open_ones = processes.broadcast([index for index, target in enumerate(targets) if not target.is_file()])
    share = open_ones[processes.rank :: processes.world_size]
    if processes.is_first and len(open_ones) < len(targets):
        say(f"{len(targets) - len(open_ones)} of {len(targets)} images were predicted before")
    with predicting(processes.device, settings.bfloat16):
        for number, prediction in enumerate(predict(model, images, share, loader, bfloat16=settings.bfloat16), 1):
            save_label(folder / archive_name(prediction.name), LABEL_IDS[prediction.predicted.cpu().numpy()])
            if processes.is_first and number % REPORT_EVERY == 0:
                say(f"{number}/{len(share)} images")
            between()


def unlabelled(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the config of the labelled test data into that of the test split's images alone."""
    pipeline = [
        {"type": LoadBlankLabels.__name__} if step["type"] == "LoadAnnotations" else dict(step)
        for step in dataset["pipeline"]
    ]
    prefix = {"img_path": layout("cityscapes").splits["test"].images}
    return {**dataset, "data_prefix": prefix, "pipeline": pipeline}
