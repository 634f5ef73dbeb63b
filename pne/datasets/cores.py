"""How many threads are worth starting."""

import os

MOST = 8  # more threads than this wait for disks, not for cores


def usable_threads(wanted: int | None = None) -> int:
    """Return the number of threads to read files with: ``wanted``, or one per core that this process may use.

    A batch system gives a job some of a machine's cores; where the operating system does not tell which, all of the
    machine's count.
    """
    if wanted is not None:
        return max(1, wanted)
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows
        cores = os.cpu_count() or 1
    return min(MOST, cores)
