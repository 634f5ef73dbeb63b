"""What a SLURM cluster does with the jobs of a workflow, in words: ``python -m workflows.queue``. Reads only."""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pne.errors import UserError, reports_user_errors

COMMENT = re.compile(r"rule_(?P<rule>[a-z_]+)(?:_wildcards_(?P<about>.+))?")
REASONS = {
    "Priority": "other jobs come first",
    "Resources": "waits until GPUs, cores or memory are free",
    "Dependency": "waits for another job",
    "BeginTime": "was put back into the queue and starts again soon",
    "JobHeldUser": "held; let it go with scontrol release",
    "JobHeldAdmin": "held by the administrator",
    "PartitionTimeLimit": "asks for more time than the partition allows; set runtime in the profile",
    "PartitionDown": "the partition is down",
    "ReqNodeNotAvail": "a node that it needs is not available",
}
NO_NODE = ("Nodes required for job are DOWN, DRAINED", "ReqNodeNotAvail", "PartitionDown")


@dataclass(frozen=True)
class Job:
    """One job of the queue."""

    number: str
    state: str
    reason: str
    rule: str
    about: str
    used: str
    limit: str
    nodes: str

    def describe(self) -> str:
        """Say on one line what the job is and what it does."""
        if self.state == "RUNNING":
            return f"{self.number}  {self.rule} {self.about}: running on {self.nodes} for {self.used} of {self.limit}"
        return f"{self.number}  {self.rule} {self.about}: {self.state.lower()}, {explain(self.reason)}"


def explain(reason: str) -> str:
    """Put SLURM's reason for a waiting job into words; unknown ones stay as they are."""
    if reason.startswith("Nodes required for job are DOWN, DRAINED"):
        return "every node that it could use is down, drained or reserved"
    word = reason.split(",")[0]
    if word.startswith(("Assoc", "QOS")):
        return f"a limit of the account or the qos is reached ({word})"
    return REASONS.get(word, reason)


def parse_jobs(text: str) -> list[Job]:
    """Parse squeue's lines; jobs of other work, without a rule in their comment, are left out."""
    jobs = []
    for line in text.splitlines():
        number, state, used, limit, nodes, comment, reason = line.split("|", 6)
        if found := COMMENT.fullmatch(comment):
            about = (found["about"] or "").split("_", 1)[-1]  # without the track
            jobs.append(Job(number, state, reason.strip("()"), found["rule"], about, used, limit, nodes))
    return jobs


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except FileNotFoundError:
        raise UserError(f"no {command[0]} on this machine; run this where you submit jobs to SLURM") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} did not answer within 60 s; SLURM's controller may be down") from None
    except subprocess.CalledProcessError as error:
        raise UserError(f"{' '.join(command)}: {error.stderr.strip()}") from None
    return done.stdout


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Print the jobs of this user's workflows and, if any waits for lack of nodes, why nodes are missing."""
    jobs = parse_jobs(_ask("squeue", "--me", "--noheader", "--format=%i|%T|%M|%l|%N|%k|%r"))
    for job in jobs:
        print(job.describe())
    if not jobs:
        print("no job of a workflow is in the queue")
    if any(job.reason.startswith(NO_NODE) for job in jobs):
        print("Nodes that take no jobs:")
        for line in _ask("sinfo", "--list-reasons", "--noheader", "--format=%n|%T|%E|%u|%H").splitlines():
            node, state, reason, user, since = line.split("|", 4)
            print(f"  {node}: {state}, {reason} (said {user} at {since})")


if __name__ == "__main__":
    sys.exit(main())
