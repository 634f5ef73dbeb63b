"""Several scales and mirror images against mmsegmentation's own test-time augmentation, for each kind of data."""

import torch

from benchmarks.evaluation import EQUAL, TARGET, compare, spread_predictions
from benchmarks.gpu_check.report import Report
from benchmarks.gpu_check.runs import declared, draw_images
from pne.engine.runner import prepare
from pne.engine.weights import build_plain

# track, data set and model as the paper calls them, size and number of images
CASES = (
    ("camvid", "cityscapes", "deeplabv3_r50", (360, 480), 8),
    ("paper", "cityscapes", "deeplabv3_r101", (1024, 2048), 3),
    ("paper", "ade20k", "ocrnet_w48", (512, 683), 6),
    ("paper", "coco_stuff", "upernet_swin_b", (480, 640), 6),
)
TINY_CASES = (("camvid_tiny", "cityscapes", "deeplabv3_r50", (180, 240), 2),)


def run(report: Report) -> None:
    """Measure each case with arbitrary weights."""
    for track, dataset, model, size, count in TINY_CASES if report.tiny else CASES:
        name = f"{track} {dataset} {model}"
        with report.attempt(name):
            run, plain = declared(report, "evaluation", track, model=model, dataset=dataset)
            draw_images(run.data_directory, run.layout, count, size)
            config = prepare(run, plain)
            torch.set_num_threads(run.runtime.threads)
            torch.manual_seed(0)
            network = build_plain(config["model"], report.device)
            spread_predictions(network, config["test_dataloader"]["dataset"], report.device)
            for way, found in compare(network, config, count, report.device, 1).items():
                kept = {key: found[key] for key in ("s_per_image", "peak_memory_mib", "miou")}
                what, faster, off = f"{name}, {way}", found["times_faster"], found["largest_iou_difference"]
                if way == "pne":
                    report.check(f"{what}: times faster", faster, at_least=TARGET, timing=True, **kept)
                    report.check(f"{what}: largest IoU difference (%)", off, at_most=EQUAL)
                else:
                    report.tell(what, times_faster=faster, largest_iou_difference=off, **kept)
            del network
