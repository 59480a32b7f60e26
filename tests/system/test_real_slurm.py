"""Whose work it is on a real Slurm: jobs of every kind on a booted node, and skuwise's rows beside Slurm's own record.

Three ways to list GPUs in gres.conf, each on a machine of its own; they run at the same time. What is right is never
what our code says: GPUs are those that the kernel let the job's own processes open, all else is Slurm's accounting.
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from skuwise.tests.system import slurm_cases as cases
from skuwise.tests.system.machine import skip_without
from skuwise.tests.system.slurm_machine import USERS, Layout, booted, slurm_root

pytestmark = [pytest.mark.system]

LAYOUTS = (
    Layout("all", "Name=gpu File=/dev/nvidia[0-7]\n", "gpu:8", tuple(range(8))),
    Layout("last four", "Name=gpu File=/dev/nvidia[4-7]\n", "gpu:4", (4, 5, 6, 7), "v1, devices denied"),
    # slurmd puts the types in the order in which slurm.conf has them.
    Layout(
        "typed",
        "Name=gpu Type=h100 File=/dev/nvidia[4-7]\nName=gpu Type=a100 File=/dev/nvidia[2,0-1,3]\n",
        "gpu:a100:4,gpu:h100:4",
        (2, 0, 1, 3, 4, 5, 6, 7),
        "v2",
    ),
)
LINUXPROC = Layout("all, linuxproc", LAYOUTS[0].gres_conf, "gpu:8", LAYOUTS[0].order, proctrack="linuxproc")


@dataclass(frozen=True, slots=True)
class Came:
    """All that came of the machines."""

    seen: Mapping[str, cases.Seen]
    faults: tuple[Mapping[str, str], Sequence[str]] | None
    doctor: str


def on_machine(root: Path, folder: Path, layout: Layout) -> Came:
    """One machine from boot to end. The first layout's also meets faults, and what doctor is for."""
    name = layout.name.replace(" ", "-")
    with booted(root, folder / name, layout) as machine:
        try:
            seens = [cases.Seen(layout)]
            runner = cases.Runner(machine, seens[0])
            runner.kinds()
            runner.restarts()
            is_first = layout is LAYOUTS[0]
            if is_first:
                seens.append(cases.Seen(LINUXPROC))
                cases.Runner(machine, seens[1]).without_cgroups()
            cases.collect(machine, seens, folder / f"{name}.db")
            doctor = cases.ask_doctor(machine, layout) if is_first else ""
            faults = cases.meet_faults(machine) if is_first else None
            return Came({seen.layout.name: seen for seen in seens}, faults, doctor)
        except BaseException as error:
            with contextlib.suppress(Exception):
                error.add_note(machine.logs())
            raise


@pytest.fixture(scope="module")
def came(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Came]:
    skip_without("mount", "cc")
    folder = tmp_path_factory.mktemp("slurm")
    root = slurm_root(folder, tmp_path_factory)
    try:
        with ThreadPoolExecutor(len(LAYOUTS)) as pool:
            results = list(pool.map(lambda layout: on_machine(root, folder, layout), LAYOUTS))
        yield Came({k: v for result in results for k, v in result.seen.items()}, results[0].faults, results[0].doctor)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(root)  # some 900 MB


@pytest.mark.parametrize("name", [layout.name for layout in (*LAYOUTS, LINUXPROC)])
def test_every_case_has_the_right_gpus_job_owner_and_times(came: Came, name: str) -> None:
    seen = came.seen[name]
    assert {job.user for job in seen.accounted} == set(USERS)
    assert cases.differences(seen, seen.recorded, cases.RECORDED) == [], "before the import"
    assert cases.differences(seen, seen.imported, cases.COLUMNS) == [], "after the import"
    assert set(seen.node_states) == {"idle"}


def test_a_job_whose_prolog_and_epilog_meet_a_fault_completes_and_drains_no_node(came: Came) -> None:
    assert came.faults is not None
    jobs, node_states = came.faults
    assert len(jobs) == 4 and set(jobs.values()) == {"COMPLETED"}, jobs
    assert set(node_states) == {"idle"}


def test_doctor_finds_nothing_wrong_with_slurm(came: Came) -> None:
    assert "absent  slurm" not in came.doctor and "7 is GPU 7" in came.doctor, came.doctor
