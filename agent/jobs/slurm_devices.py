"""Which GPUs a Slurm job holds: from the proofs that a node gives, best first; what none of them proves stays unknown.

1. The device cgroup of the job, where it can be read: what the job may open, of what is Slurm's here.
2. The settings: ``SLURM_JOB_GPUS`` counts the node's GPUs in the order of gres.conf (`slurm_conf`).
3. What the job's processes work on or hold open, where cgroup.conf keeps jobs from other GPUs and they are on as many
   as the job was given.

What processes do must agree with what was given. A job that works on a GPU that the settings did not give it shows that
the settings say something else than slurmd read: then nothing is claimed for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..model import Gpu
from .cgroups import read_ascii
from .device_cgroup import Allowed, Majors, device_number, job_lists, read_majors
from .scheduler_claims import Devices
from .slurm_conf import Gres

_GPU_FILE = re.compile(r"/dev/nvidia(\d{1,4})")
_CAPS_FILE = re.compile(r"/dev/nvidia-caps/nvidia-cap(\d{1,5})")
_ACCESS = re.compile(r"gpu(\d{1,4})/gi(\d{1,4})/access (\d{1,5})")
# What a job may have been given by name instead of by index.
_UUID = re.compile(r"(?:GPU|MIG)-.+")

DeviceNumber = Callable[[str], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class Resolution:
    """`gpu_uuids` are proven. `unknown`: what Slurm gave and nothing names, with `why`; `driver_is_silent`: as the
    driver tells of no GPU. `contradiction`: what does not agree; then `gpu_uuids` is what the cgroup says, or empty."""

    gpu_uuids: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    why: str = ""
    driver_is_silent: bool = False
    contradiction: str = ""


@dataclass(frozen=True, slots=True)
class ProcessEvidence:
    """What is seen of a job's processes: GPUs they work on (NVML), and minors of device nodes they hold open."""

    gpu_uuids: frozenset[str] = frozenset()
    open_minors: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class Resolver:
    """Names devices for one scan: what the driver, the kernel and Slurm's settings call them."""

    devices: Devices
    procfs: Path
    cgroups: Path
    number_of: DeviceNumber = device_number
    _majors: Majors | None = field(default=None, init=False)
    _caps: Mapping[int, tuple[int, int]] | None = field(default=None, init=False)

    def resolve(self, name: str, given: Sequence[str] | None, gres: Gres, evidence: ProcessEvidence) -> Resolution:
        """The GPUs of the job whose cgroup is `name`. `given`: what ``SLURM_JOB_GPUS`` holds; None: nobody told."""
        if not self.devices.whole:
            why = "the driver does not list the GPUs here (see nvml in skuwise agent doctor)"
            return Resolution(unknown=tuple(given or ()), why=why, driver_is_silent=True)
        lists = job_lists(self.cgroups, name)
        proven, bound = self._from_cgroup(lists, given, gres) if lists is not None else (None, None)
        by_settings, unknown, why = self._from_settings(given, gres) if given is not None else (None, (), "")
        seen = evidence.gpu_uuids | self._opened(evidence.open_minors)
        if proven is not None:
            said = None
            if by_settings is not None and set(by_settings) != set(proven):
                said = f"{self._indices(by_settings)} by Slurm's settings"
            elif by_settings is None and given is not None and len(given) != len(proven):
                said = f"{len(given)} by the prolog"
            text = f"{self._indices(proven)} by its device cgroup, {said}" if said else ""
            return Resolution(self._in_order(proven), contradiction=text)
        if by_settings is not None:
            if bound is not None and not set(by_settings) <= bound:
                text = f"{self._indices(by_settings)} by Slurm's settings, which its device cgroup does not allow"
                return Resolution(contradiction=text)
            outside = self._outside(evidence.gpu_uuids, set(by_settings))
            if outside:
                text = f"{self._indices(by_settings)} by Slurm's settings, but it works on {self._indices(outside)}"
                return Resolution(contradiction=text)
            return Resolution(self._in_order(by_settings))
        if given and gres.is_constrained and len(seen) == len(given):
            return Resolution(self._in_order(seen))
        if given and gres.is_constrained and len(evidence.gpu_uuids) > len(given):
            text = f"{len(given)} by the prolog, but it works on {self._indices(evidence.gpu_uuids)}"
            return Resolution(contradiction=text)
        return Resolution(unknown=unknown, why=why)

    # The device cgroup.

    def _from_cgroup(
        self, lists: tuple[Allowed, Allowed], given: Sequence[str] | None, gres: Gres
    ) -> tuple[set[str] | None, set[str] | None]:
        """What it proves, and what it leaves possible; None each: nothing."""
        mine, whole = (self._allowed(one) for one in lists)
        if mine is None or whole is None or mine == self._allowed_everything():
            return None, None
        slurms = self._units_uuids(gres)
        possible = mine & slurms if slurms is not None else mine
        if given is not None and len(possible) == len(given):
            return possible, mine
        # Slurm lets a job open every GPU that gres.conf does not list, so without it this is only a bound.
        if slurms is not None and whole > mine:
            return possible, mine
        return None, mine

    def _allowed_everything(self) -> set[str]:
        return {gpu.uuid for gpu in self.devices.whole if not self.devices.parts(gpu.uuid)} | {
            part.uuid for gpu in self.devices.whole for part in self.devices.parts(gpu.uuid)
        }

    def _allowed(self, allowed: Allowed) -> set[str] | None:
        majors = self._driver_majors()
        found: set[str] = set()
        for gpu in self.devices.whole:
            if gpu.minor is None:
                return None
            parts = self.devices.parts(gpu.uuid)
            if not allowed.has_gpu(majors, gpu.minor):
                continue
            if not parts:
                found.add(gpu.uuid)
                continue
            minors = {place: minor for minor, place in self._capabilities().items()}
            for part in parts:
                minor = minors.get((gpu.minor, part.gpu_instance if part.gpu_instance is not None else -1))
                if minor is None or majors.caps is None:
                    return None  # what stands for an instance is not known
                if allowed.has(majors.caps, minor):
                    found.add(part.uuid)
        return found

    # The settings.

    def _from_settings(self, given: Sequence[str], gres: Gres) -> tuple[tuple[str, ...] | None, tuple[str, ...], str]:
        """The devices; or None, what is unknown, and why."""
        units: Sequence[tuple[str, ...] | None] | None = None
        found: dict[str, None] = {}
        unknown: list[str] = []
        why = ""
        for name in given:
            uuids: tuple[str, ...] | None = None
            if _UUID.fullmatch(name):
                uuids = self.devices.resolve((name,))[0] or None
                why = why or ("" if uuids else "the driver has no such device")
            elif name.isdecimal():
                if units is None:
                    units, reason = self._units(gres)
                    why = why or reason
                uuids = units[int(name)] if int(name) < len(units) else None
                why = why or ("" if uuids else "gres.conf names no GPU of this node by that index")
            if uuids is None:
                unknown.append(name)
            else:
                found |= dict.fromkeys(uuids)
        if not unknown:
            return tuple(found), (), ""
        # Whoever was given as many as there are was given them all, whatever the order.
        everything = self._units_uuids(gres)
        if everything and len(set(given)) == len(everything) and all(name.isdecimal() for name in given):
            return tuple(everything), (), ""
        return None, tuple(unknown), why

    def _units(self, gres: Gres) -> tuple[list[tuple[str, ...] | None], str]:
        """The devices of each index; and why they are not known."""
        if gres.units is not None:
            units = [self._unit(files) for files in gres.units]
            if any(unit is None for unit in units):
                # slurmd passes over a file that is not there, and all that follow have another index.
                first = next(files for files, unit in zip(gres.units, units, strict=True) if unit is None)
                return [], f"gres.conf names {', '.join(first)}, which is no GPU of this node"
            return self._sorted(units) if gres.is_sorted else (units, "")
        if not gres.is_sorted:
            return [], gres.why
        if gres.count != len(self.devices.whole) or any(self.devices.parts(g.uuid) for g in self.devices.whole):
            return (
                [],
                "gres.conf has AutoDetect without device files (File=), which leaves the order of the indices open",
            )
        return self._sorted([(gpu.uuid,) for gpu in self.devices.whole])

    def _sorted(self, units: Sequence[tuple[str, ...] | None]) -> tuple[list[tuple[str, ...] | None], str]:
        """By the driver's order, where that is the order of the device files as well: slurmd sorts by one or the other,
        as its AutoDetect tells links or not."""
        by_uuid = {gpu.uuid: gpu for gpu in self.devices.whole}
        gpus = [by_uuid.get(unit[0]) if unit is not None and len(unit) == 1 else None for unit in units]
        whole = [gpu for gpu in gpus if gpu is not None and gpu.minor is not None]
        by_minor = sorted(whole, key=_minor)
        if len(whole) != len(units) or by_minor != sorted(whole, key=lambda gpu: gpu.index):
            return [], "gres.conf has AutoDetect, and the order of the driver is not that of the device files"
        return [(gpu.uuid,) for gpu in by_minor], ""

    def _units_uuids(self, gres: Gres) -> set[str] | None:
        """All devices that are Slurm's here, in whatever order; None: not known."""
        if gres.is_sorted and gres.files is None:
            return self._allowed_everything() if gres.count == len(self.devices.whole) else None
        if gres.files is None:
            return None
        found: set[str] = set()
        for files in gres.units if gres.units is not None else [(file,) for file in gres.files]:
            unit = self._unit(files)
            if unit is None:
                return None
            found |= set(unit)
        return found

    def _unit(self, files: Sequence[str]) -> tuple[str, ...] | None:
        """The device of one index: a GPU, or the one MIG instance whose capabilities are among the files."""
        gpus: set[int] = set()
        caps: set[int] = set()
        for file in files:
            gpu, cap = _GPU_FILE.fullmatch(file), _CAPS_FILE.fullmatch(file)
            number = self.number_of(file)
            if cap is not None:
                caps.add(number[1] if number is not None else int(cap.group(1)))
            elif number is not None and number[0] in self._driver_majors().gpus:
                gpus.add(number[1])
            elif number is None and gpu is not None:
                gpus.add(int(gpu.group(1)))
            else:
                return None
        whole = [gpu for gpu in self.devices.whole if gpu.minor in gpus]
        if len(gpus) != 1 or len(whole) != 1:
            return None
        parts = self.devices.parts(whole[0].uuid)
        if not parts:
            return (whole[0].uuid,)
        places = {self._capabilities()[cap] for cap in caps if cap in self._capabilities()}
        instances = [p for p in parts if (whole[0].minor, p.gpu_instance) in places]
        return (instances[0].uuid,) if len(instances) == 1 else None

    # Names.

    def _opened(self, minors: frozenset[int]) -> frozenset[str]:
        whole = (gpu for gpu in self.devices.whole if gpu.minor in minors)
        return frozenset(gpu.uuid for gpu in whole if not self.devices.parts(gpu.uuid))

    def _outside(self, seen: frozenset[str], given: set[str]) -> set[str]:
        """What is worked on and was not given; a GPU stands for its instances."""
        parts = {part.uuid for gpu in self.devices.whole for part in self.devices.parts(gpu.uuid) if gpu.uuid in given}
        return {uuid for uuid in seen if uuid not in given and uuid not in parts}

    def _in_order(self, uuids: set[str] | frozenset[str] | Sequence[str]) -> tuple[str, ...]:
        return tuple(uuid for uuid in self.devices.uuids if uuid in uuids)

    def _indices(self, uuids: set[str] | frozenset[str] | Sequence[str]) -> str:
        """``GPU 0, 3`` by the driver's indices, as people see them in nvidia-smi."""
        wanted = [gpu.index for gpu in self.devices.whole if gpu.uuid in uuids]
        wanted += [g.index for g in self.devices.whole if any(p.uuid in uuids for p in self.devices.parts(g.uuid))]
        return f"GPU {', '.join(str(index) for index in sorted(set(wanted)))}" if wanted else "no GPU"

    def _driver_majors(self) -> Majors:
        if self._majors is None:
            self._majors = read_majors(self.procfs)
        return self._majors

    def _capabilities(self) -> Mapping[int, tuple[int, int]]:
        """The minor of each GPU instance's access capability -> the GPU's minor and the instance's id."""
        if self._caps is None:
            text = read_ascii(self.procfs / "driver/nvidia-caps/mig-minors")
            matches = (_ACCESS.fullmatch(line.strip()) for line in text.splitlines())
            self._caps = {int(m.group(3)): (int(m.group(1)), int(m.group(2))) for m in matches if m is not None}
        return self._caps


def _minor(gpu: Gpu) -> int:
    return gpu.minor if gpu.minor is not None else -1
