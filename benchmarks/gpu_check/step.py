"""A whole training step with each branch against that of the plain model: DeepLabV3-R101, and a short step."""

import argparse

from benchmarks.gpu_check.report import Report
from benchmarks.step_overhead import set_up, time_case

TARGETS = {"deeplabv3_r101": (1.02, 24), "deeplabv3_r18": (1.08, 80)}  # of the preset `paper`; timed steps
VARIANTS = ("projection", "paper", "authors", "cipc")


def run(report: Report) -> None:
    """Time the steps in bfloat16."""
    set_up()
    for model, (target, steps) in TARGETS.items():
        settings = argparse.Namespace(
            device=report.device.type,
            tiny=report.tiny,
            variants=VARIANTS[:2] if report.tiny else VARIANTS,
            warmup=1 if report.tiny else 8,
            steps=1 if report.tiny else steps,
        )
        with report.attempt(model):
            for line in time_case(model, "bf16", settings, report.deadline):
                if "skipped" in line:
                    report.skip(model, line["skipped"])
                elif line["variant"] == "paper":
                    report.check(f"step of {model} with paper", line["ratio"], at_most=target, timing=True, **line)
                else:
                    report.tell(f"step of {model} with {line['variant']}", **line)
