"""Searches that take turns: while a GPU evaluates the model for one of them, the host works on the next.

What a search starts on a GPU is queued in a CUDA stream of its own, so that the small steps of one need not wait for
the model calls of another. Threads would do the same, but Python runs one of them at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache

import torch

from attentest.search.outcome import Report, SearchOutcome
from attentest.search.spectral.run import Rounds


def in_turns(runs: Sequence[Rounds], device: torch.device, report: Report | None) -> list[SearchOutcome]:
    """Return the outcomes of runs, one after the other, which are made round by round in turns.

    Parameters
    ----------
    runs
        Runs of about equally many images. All that they hold on the device they must make themselves: memory of one
        stream that is freed while another still reads it is given away at once.
    device
        Where the model computes.
    report
        Called with the share of all runs that is done.
    """
    outcomes: list[list[SearchOutcome]] = [[] for _ in runs]
    shares = [0.0 for _ in runs]
    going = dict(enumerate(runs))
    streams = _streams(device, len(runs))
    for stream in streams[1:]:
        stream.wait_stream(streams[0])  # which computes what the runs begin with
    try:
        while going:
            for number, run in list(going.items()):
                try:
                    with torch.cuda.stream(streams[number]) if streams else nullcontext():
                        shares[number] = next(run)
                except StopIteration as end:
                    outcomes[number], shares[number] = end.value, 1.0
                    del going[number]
                if report is not None:
                    report(sum(shares) / len(runs))
    finally:
        for stream in streams[1:]:
            streams[0].wait_stream(stream)
    return [outcome for some in outcomes for outcome in some]


def _streams(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    """Return the current CUDA stream and more, ``count`` in all; none for another kind of device."""
    if device.type != "cuda":
        return []
    return [torch.cuda.current_stream(device), *(_stream(device, number) for number in range(1, count))]


@cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    """Return a stream of this module's own: always the same, because PyTorch keeps the memory of each for it."""
    return torch.cuda.Stream(device)
