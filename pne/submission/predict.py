"""Predict the test images, which have no labels, and pack what the server takes; goes on where it was interrupted."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Subset

from pne.datasets.doctor import fingerprint
from pne.datasets.layouts import layout
from pne.datasets.pictures import write_bytes
from pne.engine import checkpoint
from pne.engine.command import is_of
from pne.engine.console import say
from pne.engine.data import build_dataset, check_folder, image_loader
from pne.engine.inference import Views, predict_multi_scale_flip, predict_single_scale
from pne.engine.interruption import StopRequest
from pne.engine.processes import Processes
from pne.engine.provenance import describe, utc_now
from pne.engine.publication import verified_weights
from pne.engine.weights import load_trained
from pne.errors import UserError
from pne.files import write_text, written_aside
from pne.spec import Run, read_config, read_spec
from pne.submission.archive import Submission, archive_name, encode, find_images, write_archive
from pne.submission.blank_labels import LoadBlankLabels  # importing registers

REPORT_EVERY = 100


@dataclass(frozen=True)
class Settings:
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
    run, config = read_spec(path), read_config(path)
    is_of(run, path)
    if run.layout != "cityscapes":
        raise UserError(f"{path}: trained on {run.dataset_title}; the server takes results on Cityscapes alone")
    images = find_images(run.data_directory, settings.subset)
    names = [archive_name(image.stem) for image in images]
    weights, weights_sha256 = verified_weights(run, path)
    started = utc_now()
    model, prepared = load_trained(run, config, weights, processes.device)
    # Named after all that the pictures depend on, so that none of another model is taken for one of this.
    kind = f"{settings.evaluation}-bfloat16" if settings.bfloat16 else settings.evaluation
    folder = run.work_directory / f"submission-{kind}-{weights_sha256[:12]}"
    predict(model, prepared, folder, settings, processes, between=request.check)
    processes.wait()
    if processes.is_first:
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise RuntimeError(f"{folder}: {len(missing)} predictions were not written, {missing[0]} first")
        archive = archive_path(run, settings)
        with written_aside(archive) as aside:
            write_archive(aside, folder, names)
        about = Submission(
            run=run.run,
            evaluation=settings.evaluation,
            bfloat16=settings.bfloat16,
            images=len(names),
            weights_sha256=weights_sha256,
            archive_sha256=checkpoint.sha256(archive),
            provenance=describe(
                device=processes.device,
                world_size=processes.world_size,
                micro_batch=1,
                dataset_fingerprint=fingerprint(run.layout, run.data_directory),
                seed=run.seed,
                started=started,
            ),
        )
        write_text(archive.with_suffix(".json"), about.model_dump_json(indent=1) + "\n")
        shutil.rmtree(folder)
        say(f"{archive}: {len(names)} predictions, {archive.stat().st_size / 2**20:.1f} MiB")
    processes.wait()


def archive_path(run: Run, settings: Settings) -> Path:
    """Where the archive of a run goes; one made with other than the default settings takes the place of none."""
    return Path(run.runtime.results) / "submissions" / ".".join([run.run, *settings.deviations, "zip"])


def predict(
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
    loader, device = config["test_dataloader"], processes.device
    source = unlabelled(loader["dataset"])
    if settings.evaluation == "single_scale":
        dataset, predictor, options = build_dataset(source), predict_single_scale, {}
        images = dataset
    else:
        check_folder(source)
        dataset, predictor, options = Views(source), predict_multi_scale_flip, {"bfloat16": settings.bfloat16}
        images = dataset.dataset
    targets = [
        folder / archive_name(Path(images.get_data_info(index)["img_path"]).stem) for index in range(len(images))
    ]
    open_ones = processes.broadcast([index for index, target in enumerate(targets) if not target.is_file()])
    share = Subset(dataset, open_ones[processes.rank :: processes.world_size])
    if processes.is_first and len(open_ones) < len(targets):
        say(f"{len(targets) - len(open_ones)} of {len(targets)} images were predicted before")
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=settings.bfloat16)
    with torch.inference_mode(), autocast:
        for number, prediction in enumerate(
            predictor(model, image_loader(share, loader["num_workers"], device), **options), 1
        ):
            picture = encode(prediction.predicted.cpu().numpy())
            write_bytes(folder / archive_name(prediction.name), picture)
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
