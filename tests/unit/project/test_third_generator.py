"""The third generator: a seed gives the same fleet, every kind is there, and series are as exporters give them."""

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from skuwise.advisor.core.frame import Window
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.benchmarks.generators.third.agent_fleet import plan_series
from skuwise.benchmarks.generators.third.agent_store import write_node
from skuwise.benchmarks.generators.third.exporters import Observed, observe
from skuwise.benchmarks.generators.third.findings import RULES
from skuwise.benchmarks.generators.third.fleet import Fleet, plan
from skuwise.benchmarks.generators.third.series import lines
from skuwise.benchmarks.generators.third.truth import truths_of
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel

END = 1_789_999_200.0
FEW = ("slice-notebook", "shared-services", "train-launch", "held", "nightly", "never-used")
SECONDS = 12 * 3600


def few(seed: int) -> Fleet:
    """Half a day of one workload of each of some archetypes, and their nodes."""
    whole = plan(seed, END)
    first = {w.archetype.name: w for w in reversed(whole.workloads) if w.archetype.name in FEW}
    kept = list(first.values())
    for workload in kept:
        workload.runs = [
            dataclasses.replace(run, start=0, end=SECONDS, since=0) for run in workload.runs[: workload.archetype.pods]
        ]
    used = {machine.name for w in kept for run in w.runs for machine, _ in run.members}
    return dataclasses.replace(
        whole, seconds=SECONDS, workloads=kept, machines=[m for m in whole.machines if m.name in used]
    )


@pytest.fixture(scope="module")
def observed() -> Observed:
    return observe(few(1007))


def test_a_seed_gives_the_same_fleet_and_the_same_lines() -> None:
    one, other = (few(1003) for _ in range(2))
    assert [m.slots for m in one.machines] == [m.slots for m in other.machines]
    assert [run.name for w in one.workloads for run in w.runs] == [run.name for w in other.workloads for run in w.runs]
    assert list(lines(observe(one))) == list(lines(observe(other)))
    assert [m.slots[0].uuid for m in few(1004).machines] != [m.slots[0].uuid for m in one.machines]


def test_every_kind_stands_in_a_fleet_often_enough_and_no_gpu_is_held_twice() -> None:
    fleet = plan(1000, END)
    kinds = Counter(w.kind for w in fleet.workloads)
    known = set(KindLabel.__args__) - {"unknown"}
    assert known <= set(kinds)
    assert min(kinds[kind] for kind in known) >= 10
    assert {w.bottleneck for w in fleet.workloads} - {None} <= set(BottleneckLabel.__args__)
    spans: dict[str, list[tuple[int, int, int]]] = {}
    for workload in fleet.workloads:
        for run in workload.runs:
            assert 0 <= run.start < run.end <= fleet.seconds
            for _, slots in run.members:
                for slot in slots:
                    spans.setdefault(slot.key, []).append((run.start, run.end, workload.number))
    for held in spans.values():
        assert len({number for *_, number in held}) == 1


def test_truths_name_what_was_held_and_judge_every_rule(observed: Observed) -> None:
    truths = truths_of(observed.fleet)
    assert {truth.archetype for truth in truths} == set(FEW)
    assert all(set(truth.findings) == set(RULES) for truth in truths)
    held = next(truth for truth in truths if truth.archetype == "held")
    assert (held.kind, held.bottleneck, held.findings["held-idle"]) == ("idle", "idle", True)
    launch = next(truth for truth in truths if truth.archetype == "train-launch")
    assert launch.findings["fix-first"] in (True, None)  # None: its counters are stuck
    assert launch.findings["held-idle"] is False


def test_a_series_of_the_agent_is_read_back(tmp_path: Path) -> None:
    fleet = next(f for f in plan_series(1005, END) if f.workloads[0].archetype.name == "train-launch")
    workload = write_node(fleet, tmp_path)
    frame = read_frame([tmp_path], Window(fleet.start, fleet.start + fleet.seconds))
    assert set(frame.uses["gpu_uuid"]) == {slot.key for m in fleet.machines for slot in m.slots}
    assert len(frame.gpu) >= fleet.seconds // 3600
    assert 0.5 < frame.gpu["gpu_util_mean"].mean() <= 1
    assert not any(workload.findings.values())
