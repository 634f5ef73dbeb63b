"""Where the time of a finished track went: wall times cores against the iterations and evaluations in it.

Reads the log of the call of Snakemake that trained it, and the results.

    make reproduce; python benchmarks/quick_track.py --track quick
"""

import argparse
import os
import re
from collections import defaultdict
from datetime import datetime
from pathlib import Path

from pne.results import EvaluationResult, TrainResult, read_result_of
from pne.spec import load_track

STAMP = re.compile(r"\[(\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})\]")
STARTED = re.compile(r"Job (\d+): ")
FINISHED = re.compile(r"Finished jobid: (\d+) \(Rule: (\w+)\)")


def seconds_by_rule(log: str) -> tuple[float, dict[str, tuple[int, float]]]:
    """Return the seconds between the first and the last job of a Snakemake log, and count and seconds by rule."""
    started, rules, now, times = {}, defaultdict(list), None, []
    for line in log.splitlines():
        if stamp := STAMP.match(line):
            now = datetime.strptime(stamp[1], "%a %b %d %H:%M:%S %Y").timestamp()
            times.append(now)
        elif begin := STARTED.match(line):
            started[begin[1]] = now
        elif end := FINISHED.match(line):
            rules[end[2]].append(now - started[end[1]])
    return times[-1] - times[0], {rule: (len(spans), sum(spans)) for rule, spans in rules.items()}


def main() -> None:
    """Print one line for each rule, then the ratio."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command.add_argument("--track", default="quick")
    command.add_argument("--log", type=Path, help="of Snakemake (default: the newest in which something was trained)")
    command.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="that the call had")
    args = command.parse_args()
    logs = [args.log] if args.log else sorted(Path(".snakemake/log").glob("*.log"), reverse=True)
    text = next(text for path in logs if "(Rule: train)" in (text := path.read_text()) or args.log)
    wall, rules = seconds_by_rule(text)
    trained = evaluated = 0.0
    for run in load_track(args.track).runs.values():
        result = read_result_of(run, "train", TrainResult)
        trained += result.iterations * result.time_s
        evaluated += sum(read_result_of(run, name, EvaluationResult).time_s for name in run.evaluations)
    for rule, (count, seconds) in sorted(rules.items(), key=lambda item: -item[1][1]):
        print(f"{rule:20} {count:4} jobs {seconds:8.0f} s")
    print(f"{wall:.0f} s on {args.cores} cores; iterations {trained:.0f} s, evaluations {evaluated:.0f} s")
    print(f"wall times cores to iterations and evaluations: {wall * args.cores / (trained + evaluated):.2f}")


if __name__ == "__main__":
    main()
