"""Everything that stands behind a cell: the command, config, log and provenance of one run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pne.errors import UserError
from pne.results import EvaluationResult, TrainResult, read_result
from pne.spec import CONFIG_FILE, SPEC_FILE, Run

LOG_LINES = 40


@dataclass(frozen=True)
class RunDetails:
    """What a page shows of one run.

    Attributes
    ----------
    run : Run
    commands : tuple of str
        What trains and evaluates it, from the root of the checkout.
    results : list of (str, str)
        Name and value of each measured quantity.
    provenance : list of (str, str)
        Where the numbers come from.
    files : list of (str, str)
        Title and text: spec, config, end of the log.
    problem : str or None
        Why results are missing.
    """

    run: Run
    commands: tuple[str, ...]
    results: list[tuple[str, str]]
    provenance: list[tuple[str, str]]
    files: list[tuple[str, str]]
    problem: str | None = None


def describe_run(run: Run) -> RunDetails:
    """Collect what the folder of a run holds; what is missing is left out and named."""
    spec = run.directory / SPEC_FILE
    commands = [f"python -m pne.train {spec}"]
    commands += [
        f"python -m pne.evaluate --evaluation {name} {spec}" for name in run.evaluations if name != "single_scale"
    ]
    results: list[tuple[str, str]] = []
    provenance: list[tuple[str, str]] = []
    problems = []
    try:
        train = read_result(run.directory / "train.json", TrainResult)
        results += _of_training(train)
        provenance += _flatten("training", train.provenance.model_dump())
        provenance += [("training: earlier code sha256", code) for code in train.earlier_code_sha256]
    except UserError as error:
        problems.append(str(error))
    for name in run.evaluations:
        try:
            result = read_result(run.directory / f"{name}.json", EvaluationResult)
            results += [(f"{name}: mIoU (%)", f"{result.miou:.2f}"), (f"{name}: aAcc (%)", f"{result.aacc:.2f}")]
            provenance += _flatten(name, result.provenance.model_dump(include={"git_commit", "device", "ended"}))
        except UserError as error:
            problems.append(str(error))
    files = [(name, _read(run.directory / name)) for name in (SPEC_FILE, CONFIG_FILE)]
    log = _read(run.directory / "log").splitlines()
    files.append((f"log (last {LOG_LINES} lines)", "\n".join(log[-LOG_LINES:])))
    shown = [(title, text) for title, text in files if text]
    return RunDetails(run, tuple(commands), results, provenance, shown, "; ".join(problems) or None)


def _of_training(train: TrainResult) -> list[tuple[str, str]]:
    found = [
        ("iterations", f"{train.iterations}"),
        ("s/iteration", f"{train.time_s:.3f}"),
        ("peak memory (MiB)", f"{train.peak_memory_mib:.0f} ({train.memory_kind.replace('_', ' ')})"),
        ("resumes", f"{train.resumes}"),
        ("parameters at inference", f"{train.parameters:,}"),
        ("weights (sha256)", train.weights_sha256),
    ]
    found += [(name, f"{value:.4f}") for name, value in train.losses.items()]
    if train.contrast is not None:
        found.append(("contrast active in", f"{100 * train.contrast.active_fraction:.0f} % of the iterations"))
        found += [(f"contrast: {name}", f"{value:.4f}") for name, value in train.contrast.final_statistics.items()]
    return found


def _flatten(prefix: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = []
    for key, value in values.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        pairs.append((f"{prefix}: {key.replace('_', ' ')}", text if isinstance(text, str) else json.dumps(text)))
    return pairs


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
