"""Devices to compute on, and how much of their memory to use."""

from __future__ import annotations

import os
from textwrap import shorten

import torch

from attentest.checks import whole_number
from attentest.errors import InputError, shortened

FLOAT64_DEVICES = ("cpu", "cuda")  # types of device that compute in float64
LONGEST_REASON = 300  # most characters of an error of torch that is quoted, in whole words
LEAST_MEMORY = 2**24  # smallest memory budget in bytes: less holds no batch of any model
MOST_CPU_MEMORY = 2**31  # largest default budget in bytes on a CPU, where more memory makes nothing faster


def as_memory_budget(value: int | None) -> int | None:
    """Return a memory budget in bytes; None for the default. Raise an error if it is too small."""
    return None if value is None else whole_number(value, "memory_budget", LEAST_MEMORY, 2**62)


def default_memory(device: torch.device) -> int:
    """Return a quarter of the free memory of a device, and no more than 2 GiB on the CPU."""
    if device.type == "cuda":
        return max(LEAST_MEMORY, int(torch.cuda.mem_get_info(device)[0]) // 4)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system reports it
        free = MOST_CPU_MEMORY
    return max(LEAST_MEMORY, min(free // 4, MOST_CPU_MEMORY))


def usable_device(device: torch.device | str) -> torch.device:
    """Return a device that is available and computes in float64; raise an error for any other."""
    try:
        usable = torch.device(device)
    except (RuntimeError, TypeError):  # torch's own message lists dozens of types of device
        raise InputError(
            f"device must be cpu, cuda, or cuda:N for the GPU of number N, got {shortened(device)}.", "device"
        ) from None
    try:
        if usable.type not in FLOAT64_DEVICES:
            raise RuntimeError("it does not compute in float64")
        torch.empty(1, dtype=torch.float64, device=usable)
    except (RuntimeError, AssertionError) as error:
        reason = shorten(str(error).partition("\n")[0], LONGEST_REASON, placeholder=" ...").rstrip(".")
        raise InputError(
            f"device {shortened(str(device))} cannot be used ({reason}): use cpu, or cuda or cuda:N where torch has it."
        ) from None
    return usable
