"""What a GPU has to show before long trainings: ``python benchmarks/gpu_check --out FILE``.

Each part is a process of its own with a time limit, so that one that fails or hangs stops no other. JSON lines go to
the file as they come; a summary against the targets follows. ``--parts`` repeats parts alone: their lines in the file
are replaced, the others stay. Exit status: 0 all targets met, 1 not, 2 there is no such device.
"""

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PARTS = {  # seconds on a GPU; the first four together at most 240
    "loss": 45,
    "step": 75,
    "engine": 75,
    "loader": 45,
    "gradients": 60,
    "sharing": 90,
    "memory": 120,
    "evaluation": 180,
}
SLOWER = 10  # times as long elsewhere


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    command = argparse.ArgumentParser(prog="python benchmarks/gpu_check", description=__doc__.split("\n\n")[0])
    command.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    command.add_argument("--tiny", action="store_true", help="on little data: shows that it runs")
    command.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="default: all")
    command.add_argument("--out", type=Path, default=Path("results/gpu_check.jsonl"), help="default: %(default)s")
    command.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # this is the process of a part
    return command


def carry_out(name: str, args: argparse.Namespace, limit: float) -> int:
    """Carry out a part in this process, and return its exit status."""
    deadline = time.monotonic() + limit - 3  # importing counts, too, and so does the start of Python
    import torch

    from benchmarks.gpu_check.report import Report

    with tempfile.TemporaryDirectory() as folder:
        report = Report(name, torch.device(args.device, 0), args.tiny, Path(folder), args.out, deadline)
        with report.attempt(name):
            importlib.import_module(f"benchmarks.gpu_check.{name}").run(report)
        return int(report.failed)


def in_process_of_its_own(name: str, args: argparse.Namespace, limit: float) -> dict[str, Any]:
    """Carry out a part elsewhere, and say how it ended; it and all that it started are gone afterwards."""
    from pne.engine.locks import VISIBLE, visible_devices

    command = [sys.executable, __file__, "--inside", "--parts", name, "--device", args.device, "--out", str(args.out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    if args.device == "cuda" and (names := visible_devices()):
        environment[VISIBLE] = names[0]  # what claims a GPU and what measures mean the same one
    with tempfile.TemporaryFile("w+") as log:
        command += ["--tiny"] * args.tiny
        streams = {"stdout": log, "stderr": log}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **streams)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        said = log.read().splitlines()
    error = {} if status == 0 else {"error": f"stopped after {limit:g} s" if status is None else f"status {status}"}
    return {"status": status, **error, **({"log": said[-8:]} if error else {})}


def run_parts(args: argparse.Namespace, start: Callable[..., Mapping[str, Any]] = in_process_of_its_own) -> None:
    """Carry out the parts one after the other; each leaves a line that says how it ended."""
    from pne.engine.provenance import git_state, versions

    kept = [line for line in read(args.out) if line["part"] not in args.parts and line["what"] != "summary"]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    where = {"device": args.device, "torch": versions()["torch"], "commit": git_state()[0]}
    for name in args.parts:
        began = time.monotonic()
        ended = start(name, args, PARTS[name] * (1 if args.device == "cuda" else SLOWER))
        line = {"part": name, "what": "end", **ended, "seconds": round(time.monotonic() - began, 1), **where}
        append(args.out, line)
        print(f"{name}: {line['seconds']} s{', ' + line['error'] if 'error' in line else ''}", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Read the whole lines of the file; none where there is no file, and no torn one."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def summarise(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sort what was found: targets met and missed, what failed, what does not count, what was skipped and why."""
    ends = {line["part"]: line for line in lines if line["what"] == "end"}
    found = [line for line in lines if line["what"] != "end"]
    names = {id(line): f"{line['part']}: {line['what']}" for line in found}
    checked = [line for line in found if "target" in line]
    return {
        "met": [names[id(line)] for line in checked if line["ok"]],
        "missed": {
            names[id(line)]: f"{line['value']}, expected {line['target']}" for line in checked if line["ok"] is False
        },
        "failed": {names[id(line)]: line["error"] for line in found if "error" in line and "target" not in line}
        | {part: line["error"] for part, line in ends.items() if "error" in line},
        "not judged": {names[id(line)]: line["why"] for line in checked if line["ok"] is None},
        "skipped": {names[id(line)]: line["skipped"] for line in found if "skipped" in line}
        | {part: "not carried out" for part in PARTS if part not in ends},
    }


def show(summary: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Print the summary, and the command that repeats what did not go well."""
    print(f"\n{len(summary['met'])} targets met")
    for kind in ("missed", "failed", "not judged", "skipped"):
        for what, why in summary[kind].items():
            print(f"{kind}: {what}: {why}")
    wrong = {what.partition(":")[0] for kind in ("missed", "failed") for what in summary[kind]}
    if parts := [part for part in PARTS if part in wrong]:
        tiny = " --tiny" * args.tiny
        command = f"python benchmarks/gpu_check --device {args.device}{tiny} --out {args.out}"
        print(f"To repeat what did not go well: {command} --parts {' '.join(parts)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out the parts and judge them; return the exit status."""
    args = parser().parse_args(argv)
    args.out = args.out.absolute()
    sys.path[0:0] = [str(ROOT)]
    if args.inside:
        return carry_out(args.parts[0], args, PARTS[args.parts[0]] * (1 if args.device == "cuda" else SLOWER))
    if args.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            parser().error("--device cuda: torch finds no CUDA device; run with --device cpu --tiny")
    run_parts(args)
    lines = read(args.out)
    summary = summarise(lines)
    about = {key: lines[-1][key] for key in ("device", "torch", "commit")}
    append(args.out, {"part": "all", "what": "summary", **summary, **about})
    show(summary, args)
    return int(bool(summary["missed"] or summary["failed"]))


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its modules are those of a package
    sys.exit(main())
