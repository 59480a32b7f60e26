"""Which GPUs a Slurm job was given: ``SLURM_JOB_GPUS`` counts the node's GPUs in the order of gres.conf (`slurm_conf`).

What that does not decide stays unknown. What the job's processes do must agree with it: a job that works on a GPU that
the settings did not give it shows that slurmd read other settings; then nothing is claimed for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .cgroup_tree import read_ascii
from .scheduler_claims import Devices
from .slurm_conf import Gres

_FILE = re.compile(r"/dev/(?:nvidia(\d{1,4})|nvidia-caps/nvidia-cap(\d{1,5}))")
_ACCESS = re.compile(r"gpu(\d{1,4})/gi(\d{1,4})/access (\d{1,5})")


@dataclass(frozen=True, slots=True)
class Resolution:
    """`gpu_uuids` are proven. `unknown`: what Slurm gave and nothing names, with `why`. `contradiction`: what does not
    agree; then `gpu_uuids` are empty."""

    gpu_uuids: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    why: str = ""
    contradiction: str = ""


def resolve(given: Sequence[str], gres: Gres, devices: Devices, procfs: Path) -> Resolution:
    """`given`: what ``SLURM_JOB_GPUS`` holds, indices or UUIDs."""
    if not devices.whole:
        why = "the driver does not list the GPUs here (see nvml in skuwise agent doctor)"
        return Resolution(unknown=tuple(given), why=why)
    units, why = _units(gres, devices, procfs)
    if why and len(set(given)) == gres.count == len(devices.whole) and not _has_instances(devices):
        # Whoever was given as many as there are was given them all, whatever the order.
        units = dict(zip(given, (gpu.uuid for gpu in devices.whole), strict=False))
    named = {name: name if name in devices.uuids else units.get(name) for name in given}
    if unknown := tuple(name for name, uuid in named.items() if uuid is None):
        return Resolution(unknown=unknown, why=why or "gres.conf or the driver has no GPU of that name")
    return Resolution(tuple(uuid for uuid in devices.uuids if uuid in named.values()))


def without_contradiction(found: Resolution, devices: Devices, works_on: Collection[str]) -> Resolution:
    """`found`, unless the job's processes work on GPUs that it was not given. A GPU stands for its instances."""
    mine = {part.uuid for uuid in found.gpu_uuids for part in devices.parts(uuid)} | set(found.gpu_uuids)
    outside = set(works_on) - mine
    if not found.gpu_uuids or not outside:
        return found
    names = {one.uuid: str(gpu.index) for gpu in devices.whole for one in (gpu, *devices.parts(gpu.uuid))}
    given, used = (", ".join(sorted({names.get(uuid, uuid) for uuid in some})) for some in (mine, outside))
    return Resolution(contradiction=f"GPU {given} by Slurm's settings, but it works on GPU {used}")


def _units(gres: Gres, devices: Devices, procfs: Path) -> tuple[Mapping[str, str], str]:
    """The device of each index; or none, and why they are not known."""
    gpus = {gpu.uuid: gpu for gpu in devices.whole}
    uuids = list(gpus)  # as AutoDetect finds them
    if gres.why or (gres.units is None and (gres.count != len(gpus) or _has_instances(devices))):
        return {}, gres.why or "gres.conf has AutoDetect without device files (File=), which leaves the order open"
    if gres.units is not None:
        by_files = {files: _unit(files, devices, procfs) for files in gres.units}
        uuids = [uuid for uuid in by_files.values() if uuid is not None]
        if len(uuids) < len(by_files):
            # slurmd passes over a file that is not there, and all that follow have another index.
            missing = next(files for files, uuid in by_files.items() if uuid is None)
            return {}, f"gres.conf names {', '.join(missing)}, which is no GPU of this node"
    if gres.is_sorted:
        # AutoDetect sorts by the driver's order or by that of the device files, as it tells links or not.
        uuids.sort(key=lambda uuid: gpus[uuid].index if uuid in gpus else -1)
        minors = [gpus[uuid].minor if uuid in gpus else None for uuid in uuids]
        if None in minors or minors != sorted(minors, key=lambda minor: minor or 0):
            return {}, "gres.conf has AutoDetect, and the order of the driver is not that of the device files"
    return {str(index): uuid for index, uuid in enumerate(uuids)}, ""


def _unit(files: Sequence[str], devices: Devices, procfs: Path) -> str | None:
    """The device of one index: a GPU, or the one MIG instance whose capabilities are among the files."""
    named = [_FILE.fullmatch(file) for file in files]
    minors = {int(one[1]) for one in named if one is not None and one[1]}
    gpu = next((gpu for gpu in devices.whole if minors == {gpu.minor}), None)
    if gpu is None or None in named:
        return None
    parts = devices.parts(gpu.uuid)
    if not parts:
        return gpu.uuid
    # The minor of an instance's access capability -> the GPU's minor and the instance's id.
    lines = read_ascii(procfs / "driver/nvidia-caps/mig-minors").splitlines()
    places = {one[3]: (int(one[1]), int(one[2])) for line in lines if (one := _ACCESS.fullmatch(line.strip()))}
    mine = {places.get(one[2]) for one in named if one is not None}
    instances = [part.uuid for part in parts if (gpu.minor, part.gpu_instance) in mine]
    return instances[0] if len(instances) == 1 else None


def _has_instances(devices: Devices) -> bool:
    return any(devices.parts(gpu.uuid) for gpu in devices.whole)
