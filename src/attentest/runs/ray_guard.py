"""A process beside the driver of a local Ray cluster: when the driver is gone it ends what is left of the cluster.

Ray's agents, and workers that are just starting, notice only after seconds or minutes that the driver was killed. Run
as a file, with the standard library alone, so that it is there before the cluster is.
"""

import os
import signal
import sys
import time
from contextlib import suppress

MARK = "ATTENTEST_RAY_CLUSTER"
"""Environment variable of all processes of a cluster; its value is of this cluster alone."""

LONGEST_SECONDS = 10.0
"""How long to go on ending processes; those that hang in a driver of the system are left to the system."""


QUIET_SECONDS = 1.0
"""How long nothing must be seen of a cluster that was not ended in order: a process has no environment for a moment
while it is started."""


def members(mark: str) -> list[int]:
    """Return the processes whose environment has the mark of a cluster."""
    found = []
    entry = os.fsencode(f"{MARK}={mark}")
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as environment:  # of another user, or gone
            if entry in environment.read().split(b"\0"):
                found.append(int(name))
    return found


def main(mark: str) -> None:
    """Wait until the driver closes standard input, or ends, and end the processes with a mark.

    What the driver writes there says that the cluster was ended in order.
    """
    quiet = 0.0 if sys.stdin.buffer.read() else QUIET_SECONDS
    seen = time.monotonic()
    until = seen + LONGEST_SECONDS
    while time.monotonic() < until and ((left := members(mark)) or time.monotonic() < seen + quiet):
        for process in left:
            seen = time.monotonic()
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1])
