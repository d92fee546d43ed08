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


def session_of(process: int) -> int | None:
    """Return the session of a process; None if it has ended, whether or not its parent knows that."""
    with suppress(OSError), open(f"/proc/{process}/stat", "rb") as stat:
        state, _, _, session, *_ = stat.read().rpartition(b")")[2].split()
        return None if state == b"Z" else int(session)
    return None


def members(mark: str, sessions: set[int]) -> list[int]:
    """Return the processes whose environment has the mark of a cluster, and all of their sessions, which are noted.

    Ray's agents write their names over their environment, so that only the session tells whose they are. Of a session
    that another program began, such as a shell, the other processes are not of the cluster.
    """
    entry, marked, every = os.fsencode(f"{MARK}={mark}"), set(), []
    for process in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with suppress(OSError), open(f"/proc/{process}/environ", "rb") as environment:  # of another user, or gone
            every.append(process)
            if entry in environment.read().split(b"\0"):
                marked.add(process)
    sessions.update(process for process in marked if session_of(process) == process)
    return [process for process in every if process in marked or session_of(process) in sessions]


def main(mark: str) -> None:
    """Wait until the driver closes standard input, or ends, and end the processes with a mark.

    What the driver writes there says that the cluster was ended in order.
    """
    quiet = 0.0 if sys.stdin.buffer.read() else QUIET_SECONDS
    seen = time.monotonic()
    until, sessions = seen + LONGEST_SECONDS, set[int]()
    while time.monotonic() < until and ((left := members(mark, sessions)) or time.monotonic() < seen + quiet):
        for process in left:
            seen = time.monotonic()
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1])
