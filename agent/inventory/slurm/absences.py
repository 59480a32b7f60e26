"""What is not known of Slurm's allocations on this node, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...model import Absence
from .devices import Resolution
from .job_files import JobFiles

INSTALL_PROLOG = (
    "Name /etc/skuwise/slurm/prolog.sh and epilog.sh in slurm.conf (skuwise agent install writes them; jobs that begin "
    "afterwards are known)."
)


def absences(
    files: JobFiles,
    has_claims: bool,
    stale: Sequence[str],
    untold: Sequence[str],
    resolved: Mapping[str, Resolution],
) -> frozenset[Absence]:
    """`stale`: jobs whose files are left out. `untold`: running jobs of which nobody says what they were given.
    `resolved`: what is known of each job's devices."""
    found: list[Absence] = []
    if untold or (files.missing is not None and not has_claims):
        which = f"For {_some(untold)} nothing says" if untold else "Nothing says"
        why = f"; {files.missing}" if files.missing else ": they began before the prolog was installed, or it failed"
        found.append(_absence("allocation-unknown", f"{which} which GPUs Slurm gave to a job{why}.", INSTALL_PROLOG))
    if stale:
        found.append(
            _absence(
                "allocation-stale",
                f"The prolog's files of {_some(stale)} have no living job; they are left out.",
                "Check that epilog.sh runs on this node; it ends them.",
            )
        )
    if files.refused:
        named = [f"{name}: {why}" for name, why in files.refused]
        found.append(
            _absence(
                "allocation-refused",
                f"Files of the prolog's folder are refused ({_some(named)}).",
                "Remove them; only prolog.sh and epilog.sh, as root, may write there.",
            )
        )
    against = [f"job {job} was given {one.contradiction}" for job, one in resolved.items() if one.contradiction]
    if against:
        found.append(
            _absence(
                "allocation-contradicted",
                f"Slurm's settings do not agree with what its jobs do: {_some(against)}. The device cgroup is "
                "believed; where it cannot be read, nothing is claimed.",
                "Restart slurmd after changes to gres.conf, set slurm_conf to the folder that it reads, and let "
                "cgroup.conf have ConstrainDevices=yes with TaskPlugin=task/cgroup.",
            )
        )
    unnamed = [(job, one) for job, one in resolved.items() if one.unknown]
    if unnamed:
        said = [f"{job}: {', '.join(one.unknown)}" for job, one in unnamed]
        first = next((one for _, one in unnamed if one.why), unnamed[0][1])
        why = first.why
        found.append(
            _absence(
                "allocation-unresolved",
                f"Which GPUs Slurm's indices mean is not known ({_some(said)}){f': {why}' if why else ''}.",
                _remedy(first),
            )
        )
    return frozenset(found)


def _remedy(unknown: Resolution) -> str:
    if unknown.driver_is_silent:
        return "Make the GPUs readable first: see the lines of nvml."
    return (
        "Let gres.conf on this node name the device file of every GPU (File=/dev/nvidia[0-7]), readable for the agent; "
        "where it lies elsewhere, set slurm_conf to its folder."
    )


def _absence(reason: str, detail: str, remedy: str) -> Absence:
    return Absence("source", "allocation", "slurm", reason, detail, remedy)


def _some(names: Sequence[str], shown: int = 3) -> str:
    text = ", ".join(names[:shown])
    return f"{text} and {len(names) - shown} more" if len(names) > shown else text
