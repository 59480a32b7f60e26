"""What is not known of Slurm's allocations on this node, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import Absence
from .slurm_devices import Resolution
from .slurm_job_files import JobFiles

INSTALL_PROLOG = (
    "Name /etc/skuwise/slurm/prolog.sh and epilog.sh in slurm.conf (skuwise agent install writes them; jobs that begin "
    "afterwards are known)."
)


# What to do, by the reason of the absence.
_REMEDIES = {
    "allocation-unknown": INSTALL_PROLOG,
    "allocation-stale": "Check that epilog.sh runs on this node; it ends them.",
    "allocation-refused": "Remove them; only prolog.sh and epilog.sh, as root, may write there.",
    "allocation-contradicted": "Restart slurmd after changes to gres.conf, set slurm_conf to the folder that it reads, "
    "and let cgroup.conf have ConstrainDevices=yes with TaskPlugin=task/cgroup.",
    "allocation-unresolved": "Let gres.conf on this node name the device file of every GPU (File=/dev/nvidia[0-7]), "
    "readable for the agent; where it lies elsewhere, set slurm_conf to its folder.",
}
_DRIVER_FIRST = "Make the GPUs readable first: see the lines of nvml."


def slurm_absences(
    files: JobFiles, has_claims: bool, stale: Sequence[str], untold: Sequence[str], resolved: Mapping[str, Resolution]
) -> frozenset[Absence]:
    """`stale`: jobs whose files are left out. `untold`: running jobs of which nobody says what they were given.
    `resolved`: what is known of each job's devices."""
    details: dict[str, str] = {}
    if untold or (files.missing is not None and not has_claims):
        which = f"For {_some(untold)} there is no record of" if untold else "There is no record of"
        why = f"; {files.missing}" if files.missing else ": they began before the prolog was installed, or it failed"
        details["allocation-unknown"] = f"{which} which GPUs Slurm gave to a job{why}."
    if stale:
        details["allocation-stale"] = f"The prolog's files of {_some(stale)} have no living job; they are left out."
    if files.refused:
        named = _some([f"{name}: {why}" for name, why in files.refused])
        details["allocation-refused"] = f"Files of the prolog's folder are refused ({named})."
    if against := [f"job {job} was given {one.contradiction}" for job, one in resolved.items() if one.contradiction]:
        details["allocation-contradicted"] = (
            f"Slurm's settings do not agree with what its jobs do: {_some(against)}. The device cgroup is believed; "
            "where it cannot be read, nothing is claimed."
        )
    unnamed = {job: one for job, one in resolved.items() if one.unknown}
    explained = next((one for one in unnamed.values() if one.why), Resolution())
    if unnamed:
        said = _some([f"{job}: {', '.join(one.unknown)}" for job, one in unnamed.items()])
        why = f": {explained.why}" if explained.why else ""
        details["allocation-unresolved"] = f"Slurm's GPU indices match no GPU ({said}){why}."
    remedies = {**_REMEDIES, "allocation-unresolved": _DRIVER_FIRST} if explained.driver_is_silent else _REMEDIES
    return frozenset(
        Absence("source", "allocation", "slurm", reason, detail, remedies[reason]) for reason, detail in details.items()
    )


def _some(names: Sequence[str]) -> str:
    text = ", ".join(names[:3])
    return f"{text} and {len(names) - 3} more" if len(names) > 3 else text
