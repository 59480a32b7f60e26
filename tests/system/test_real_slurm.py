"""Whose work it is on a real Slurm: jobs of every kind on a booted node, and skuwise's rows beside Slurm's own record.

Three ways to list GPUs in gres.conf, each on a separate machine; they run at the same time. What is right is never
what our code says: GPUs are those that the kernel let the job's own processes open, all else is Slurm's accounting.
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from skuwise.tests.system import slurm_cases as cases
from skuwise.tests.system.machine import BOOT, skip_without
from skuwise.tests.system.slurm_machine import USERS, Layout, booted, slurm_root

pytestmark = [pytest.mark.system]

LAYOUTS = (
    Layout("all", "Name=gpu File=/dev/nvidia[0-7]\n", "gpu:8", range(8)),
    Layout("last four", "Name=gpu File=/dev/nvidia[4-7]\n", "gpu:4", range(4, 8)),
    # slurmd puts the types in the order in which slurm.conf has them.
    Layout(
        "typed",
        "Name=gpu Type=h100 File=/dev/nvidia[4-7]\nName=gpu Type=a100 File=/dev/nvidia[2,0-1,3]\n",
        "gpu:a100:4,gpu:h100:4",
        range(8),
        "v2",
    ),
)


def on_machine(root: Path, folder: Path, layout: Layout) -> cases.Seen:
    """One machine from boot to end. The first layout's also meets faults."""
    name = layout.name.replace(" ", "-")
    with booted(root, folder / name, layout) as machine:
        try:
            seen = cases.Seen(layout)
            runner = cases.Runner(machine, seen)
            runner.kinds()
            runner.restarts()
            cases.collect(machine, seen, folder / f"{name}.db")
            cases.read_the_queue(machine, seen)
            if layout is LAYOUTS[0]:
                cases.meet_faults(machine, seen)
            return seen
        except BaseException as error:
            with contextlib.suppress(Exception):
                error.add_note(machine.logs())
            raise


@pytest.fixture(scope="module")
def seen_by_layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, cases.Seen]]:
    skip_without(*BOOT, "mount", "cc")
    folder = tmp_path_factory.mktemp("slurm")
    root = slurm_root(folder, tmp_path_factory)
    try:
        with ThreadPoolExecutor(len(LAYOUTS)) as pool:
            results = list(pool.map(lambda layout: on_machine(root, folder, layout), LAYOUTS))
        yield {seen.layout.name: seen for seen in results}
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(root)  # some 900 MB


@pytest.mark.parametrize("name", [layout.name for layout in LAYOUTS])
def test_every_case_has_the_right_gpus_job_owner_and_times(seen_by_layout: Mapping[str, cases.Seen], name: str) -> None:
    seen = seen_by_layout[name]
    assert {job.user for job in seen.accounted} == set(USERS)
    assert cases.differences(seen, seen.recorded, cases.RECORDED) == [], "before the import"
    assert cases.differences(seen, seen.imported, cases.COLUMNS) == [], "after the import"
    assert seen.waiting == {case: job for case, (_, job) in cases.QUEUED.items()} | {"parts": (1, 3.0, 2, None)}
    assert seen.pending_tasks == sum(jobs for jobs, *_ in seen.waiting.values())
    # Where prolog and epilog meet a fault the job completes all the same, and no node is drained.
    assert len(seen.faulty_jobs) == (4 if name == LAYOUTS[0].name else 0)
    assert set(seen.faulty_jobs.values()) <= {"COMPLETED"}, seen.faulty_jobs
    assert set(seen.node_states) == {"idle"}
