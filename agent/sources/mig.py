"""MIG: the instances of a GPU, as the driver lists them.

A MIG device is a compute instance within a GPU instance. A GPU instance without a compute instance is none, so it is
not listed: nothing can run on it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace

import pynvml

from .nvml_errors import FUNCTION_NOT_FOUND, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, code_of, text_of

# No GPU has more than seven instances; a driver that claims more is not asked for all of them.
_MOST_INSTANCES = 16
_MOST_ID = 1024  # ids of instances are small; 0xFFFFFFFF is the driver's word for none
_NO_MIG = frozenset({NOT_SUPPORTED, INVALID_ARGUMENT, FUNCTION_NOT_FOUND})
_EMPTY_PLACE = frozenset({NOT_FOUND, INVALID_ARGUMENT})


@dataclass(frozen=True, slots=True)
class NvmlInstance:
    """One MIG device. `alone`: no other compute instance shares its GPU instance, whose counters are then its own."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    address: int  # what the driver's handle points to: an instance that was made anew has another
    alone: bool = True
    handle: object = field(default=None, compare=False, repr=False)


def find_instances(gpu: object) -> tuple[NvmlInstance, ...] | None:
    """The MIG devices of a GPU, in the driver's order; None where MIG mode is off or unknown to it.

    Raises NVMLError where the driver cannot say, which is not the same as none.
    """
    try:
        if not pynvml.nvmlDeviceGetMigMode(gpu)[0]:
            return None
        places = pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except pynvml.NVMLError as error:
        if code_of(error) in _NO_MIG:
            return None
        raise
    found: dict[str, NvmlInstance] = {}
    for place in range(min(places, _MOST_INSTANCES)):
        one = _instance_at(gpu, place)
        if one is not None:
            found.setdefault(one.uuid, one)
    held = [one.gpu_instance for one in found.values()]
    return tuple(replace(one, alone=held.count(one.gpu_instance) == 1) for one in found.values())


def instance_slices(handle: object) -> int | None:
    """How many of its GPU's slices an instance has; None where the driver does not say."""
    try:
        slices = int(pynvml.nvmlDeviceGetAttributes_v2(handle).gpuInstanceSliceCount)
    except pynvml.NVMLError:
        return None
    return slices if 0 < slices <= _MOST_INSTANCES else None


def mig_profile_in(name: str) -> str | None:
    """``1g.10gb`` of ``NVIDIA H100 80GB HBM3 MIG 1g.10gb``; None for a name without one."""
    _, mark, profile = name.rpartition(" MIG ")
    return profile.strip() or None if mark else None


def _instance_at(gpu: object, place: int) -> NvmlInstance | None:
    try:
        handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        ids = pynvml.nvmlDeviceGetGpuInstanceId(handle), pynvml.nvmlDeviceGetComputeInstanceId(handle)
    except pynvml.NVMLError as error:
        if code_of(error) in _EMPTY_PLACE:  # nothing there, or it went away while it was asked
            return None
        raise
    if max(ids) > _MOST_ID:
        return None
    return NvmlInstance(text_of(uuid), ids[0], ids[1], ctypes.cast(handle, ctypes.c_void_p).value or 0, handle=handle)
