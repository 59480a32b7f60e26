# pyright: reportOptionalMemberAccess=false
"""Jobs that wait for GPUs: their groups, where they fit, GPUs at rest, and the findings that these would serve."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from skuwise.advisor.classify.types import RestingGpu
from skuwise.advisor.core.advice_json import to_dict
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.verdict_types import Scheduled
from skuwise.advisor.core.waiting_types import WaitingJobs
from skuwise.advisor.notify.report import split_by_team
from skuwise.advisor.pipeline import reason_on
from skuwise.advisor.recommend.waiting import Places, Queue, idle_gpus, queue_of, shares
from skuwise.advisor.show.coverage import answered_findings, waiting_words
from skuwise.advisor.show.pages.story import mail_subject, page_heading, story_of, tiles
from skuwise.tests.support.frame_builder import FREE, GIB, HELD, HOUR, START, TRAINING, FrameBuilder, queue
from skuwise.tests.support.moves_builders import END, bare, catalog, node, usage, verdicts, workload
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.schemas import validate

NOW = START + 48 * HOUR


def queued(*rows: Mapping[str, object]) -> Queue:
    frame = replace(FrameBuilder().frame(), waiting=queue(*rows), waiting_at=NOW)
    made = queue_of(frame)
    assert made is not None
    return made


def group(**row: object) -> WaitingJobs:
    return queued(row).groups[0]


def test_jobs_that_are_alike_are_one_group_and_take_turns_as_they_wait() -> None:
    q = queued(
        {"id": "9", "since": START + 50, "gpus": 8.0}, {"id": "7", "since": START + 10, "name": "first"},
        {"id": "8_[1-6]", "since": START + 20, "jobs": 6}, {"id": "10", "since": START + 60},
        {"id": "3", "since": START, "reason": "Dependency", "blocked": "dependency"},
        {"id": "ml/pod-0", "scheduler": "kubernetes", "name": "pod-0", "nodes": math.nan, "since": None},
    )  # fmt: skip
    about = [(g.name, g.jobs, g.gpus_each, g.nodes_each, g.ids) for g in q.groups]
    assert about == [
        ("first", 8, 1.0, 1, ("7", "8_[1-6]", "10")), ("train", 1, 8.0, 1, ("9",)),
        ("pod-0", 1, 1.0, None, ("ml/pod-0",)), ("train", 1, 1.0, 1, ("3",)),
    ]  # fmt: skip
    assert [(g.gpus_each, jobs) for g, jobs in q.turns] == [(1.0, 7), (8.0, 1), (1.0, 1), (1.0, 1)]
    assert (q.total.jobs, q.total.gpus, q.total.other_jobs, q.total.since) == (10, 17.0, 1, START + 10)
    assert q.groups[3].blocked_by is not None and q.groups[3].blocked_by.code == "dependency"
    assert len({g.id for g in q.groups}) == 4 and q.groups[0].id == group(id="5", since=START + 99).id


def test_a_queue_of_any_length_is_counted_and_its_list_is_bounded() -> None:
    q = queued(*({"id": str(n), "user": f"u{n}", "since": START + n} for n in range(1200)))
    assert (len(q.groups), q.total.jobs, len(q.turns)) == (1000, 1200, 1000)


def test_without_a_queue_nothing_is_said() -> None:
    assert queue_of(FrameBuilder().frame()) is None
    none_waits = queue_of(replace(FrameBuilder().frame(), waiting_at=NOW))
    assert none_waits is not None and none_waits.groups == () and none_waits.total.jobs == 0


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        (None, "abc"), ("h100", "a"), ("nvidia_h100_80gb_hbm3", "a"), ("H100-SXM5", "a"), ("a100", "b"), ("a10", ""),
        ("a100-sxm4-80gb", "b"), ("a100_40gb", ""), ("rtx2080ti", "c"), ("b200", ""), ("1g.10gb", "abc"),
        ("a100_1g.10gb", "b"), ("gpu", "abc"),
    ],
)  # fmt: skip
def test_a_type_of_gpu_fits_the_nodes_that_have_it(asked: str | None, fits: str) -> None:
    nodes = [
        node("a"), node("b", gpu_sku="A100-SXM4-80GB", gpu_name="NVIDIA A100-SXM4-80GB"),
        node("c", gpu_sku=None, gpu_name="NVIDIA GeForce RTX 2080 Ti", gpu_count=4),
    ]  # fmt: skip
    assert set(Places(verdicts(nodes), catalog()).of(group(gpu_type=asked))) == set(fits)


@pytest.mark.parametrize(
    ("row", "fits"),
    [
        ({"partition": "gpu"}, "acef"), ({"partition": "debug,gpu"}, "acef"), ({"partition": "debug"}, "cef"),
        ({}, "acef"), ({"scheduler": "kubernetes", "partition": "queue-1"}, "bcf"), ({"cluster": "c"}, "acef"),
        ({"cluster": "east"}, ""), ({"cluster": "slurm-name"}, "acef"),
    ],
)  # fmt: skip
def test_a_job_fits_nodes_of_its_scheduler_partition_and_cluster(row: Mapping[str, object], fits: str) -> None:
    """Where nothing ran, or without a partition, nothing shows which the node has; node d is of another cluster."""
    ran = {
        "a": Scheduled("slurm", partition="gpu"), "b": Scheduled("kubernetes"), "d": Scheduled("kubernetes"),
        "e": Scheduled("slurm"), "f": Scheduled("process"),
    }  # fmt: skip
    work = [workload(name, (name,), scheduled=about) for name, about in ran.items()]
    nodes = [*map(node, "abcef"), node("d", cluster="east", gpu_sku="L40S", gpu_name="NVIDIA L40S")]
    assert set(Places(verdicts(nodes, work), catalog()).of(group(gpu_type="h100", **row))) == set(fits)


@pytest.mark.parametrize(
    ("row", "gpus", "parts"),
    [
        ({"gpus": 8.0}, 8, [8]), ({"gpus": 8.0}, 4, []), ({"gpus": 16.0, "nodes": 2.0}, 8, [8, 8]),
        ({"gpus": 10.0, "nodes": 3.0}, 4, [4, 3, 3]), ({"gpus": 12.0, "nodes": math.nan}, 8, [6, 6]),
        ({"gpus": 4.0, "nodes": math.nan}, 8, [4]), ({"gpus": 2.0, "nodes": 4.0}, 8, [1, 1]),
        ({"gpus": 2 / 7, "gpu_type": "1g.10gb"}, 1, [2]), ({"gpus": 1.0, "nodes": 1.0}, 0, []),
    ],
)  # fmt: skip
def test_a_job_takes_as_many_nodes_as_it_asks_for(row: Mapping[str, object], gpus: int, parts: list[int]) -> None:
    assert shares(group(**row), gpus) == parts


def test_gpus_that_rest_in_the_newest_hour_are_idle_held_or_not() -> None:
    """Of eight: two work, two are held at rest, two are free, one began to work in the newest hour, one contradicts
    itself; a drained node and one that is silent have none."""
    b = FrameBuilder()
    uuids = b.node("n1", gpus=8)
    loads = [TRAINING, TRAINING, HELD, HELD, FREE, FREE]
    for uuid, load in zip(uuids, loads, strict=False):
        b.use(load, uuid=uuid)
    b.use(FREE, uuid=uuids[6], end=47)
    b.use(TRAINING, uuid=uuids[6], start=47)
    b.use({**FREE, "power_watts": 650.0}, uuid=uuids[7])
    b.work("w", [("n1", uuid) for uuid in uuids[:4]])
    for name, end in (("drained", 48), ("silent", 40)):
        b.use(FREE, name, b.node(name)[0], end=end)
    b.absences.append({"node": "drained", "reason": "drained", "since": START, "scope": "node", "metric": "*"})
    v = b.judged()
    assert [(gpu.gpu_uuid, gpu.held) for gpu in v.resting] == list(
        zip(uuids[2:6], [True] * 2 + [False] * 2, strict=True)
    )
    assert idle_gpus(v) == 4.0
    assert idle_gpus(replace(v, window=replace(v.window, end=v.window.end + 2 * HOUR))) is None


def test_an_instance_at_rest_is_a_part_of_a_gpu() -> None:
    b = FrameBuilder()
    b.node()
    b.gpus += [
        {"node": "n1", "gpu_uuid": f"MIG-{n}", "parent_uuid": "GPU-n1-0", "kind": "mig", "mig_profile": "3g.40gb",
         "name": "NVIDIA H100 80GB HBM3", "sku": "H100-SXM5", "mem_total_bytes": 40 * GIB, "valid_from": START}
        for n in range(2)
    ]  # fmt: skip
    b.use(FREE, uuid="MIG-0")
    b.use(TRAINING, uuid="MIG-1")
    (gpu,) = b.judged().resting
    assert (gpu.gpu_uuid, gpu.part, gpu.profile, gpu.parent_uuid) == ("MIG-0", 0.5, "3g.40gb", "GPU-n1-0")


def advised(*rows: Mapping[str, object]) -> Advice:
    """Node n1 is half held at rest and half free, n2 is free (and so its finding is the larger), n3 works."""
    held, busy = (
        workload("hold", ("n1",), kind="idle", gpus=tuple(f"GPU-n1-{n}" for n in range(4))),
        workload("b", ("n3",)),
    )
    given = verdicts(
        [node("n1"), node("n2"), node("n3")], [held, busy],
        uses=[usage(held, u_c=0, u_m=0, g=0, label="idle"), usage(busy)], idle_hours={"w-hold": held.gpu_hours},
        bare_gpus=[*(bare("n1", n) for n in range(4, 8)), *(bare("n2", n) for n in range(8))],
    )  # fmt: skip
    resting = [
        RestingGpu(name, f"GPU-{name}-{n}", 1.0, name == "n1" and n < 4) for name in ("n1", "n2") for n in range(8)
    ]
    given = replace(given, resting=tuple(resting))
    return reason_on(given, rulebook(catalog()), END, 1, source={}, queue=queued(*rows) if rows else None).advice


@pytest.mark.parametrize(
    ("rows", "served"),
    [
        ([{"gpus": 8.0, "jobs": 2}], {"held-idle": 16.0, "idle n2": 16.0}),
        ([{"gpus": 4.0}, {"id": "2", "gpus": 1.0}], {"idle n1": 5.0, "held-idle": 5.0, "idle n2": 5.0}),
        ([{"gpus": 16.0, "nodes": 2.0}], {"held-idle": 16.0, "idle n2": 16.0}),
        ([{"gpus": 24.0, "nodes": 3.0}], {}), ([{"gpus": 1.0, "gpu_type": "a100"}], {}),
        ([{"gpus": 1.0, "blocked": "dependency"}], {}), ([{"gpus": 1 / 7, "gpu_type": "1g.10gb"}], {}),
    ],
)  # fmt: skip
def test_findings_whose_gpus_a_waiting_job_could_use_rank_first(
    rows: list[Mapping[str, object]], served: Mapping[str, float]
) -> None:
    """What is free of a node counts with what a finding holds there."""
    advice = advised(*rows)
    evidence = {}
    for f in advice.findings:
        for e in (e for e in f.evidence if e.metric == "waiting_gpus_that_fit"):
            evidence[f"idle {f.node}" if f.rule == "idle" else f.rule] = e.value
    assert evidence == served
    assert [f.is_waited_for for f in advice.findings] == sorted(
        (f.is_waited_for for f in advice.findings), reverse=True
    )
    first = [f.is_waited_for for f, _ in answered_findings(advice)]
    assert first == sorted(first, reverse=True) and sum(first) == len(served)
    validate(to_dict(advice), "advice")


@pytest.mark.parametrize(
    ("jobs", "gpus", "idle", "words"),
    [
        (9, 16.0, 12.0, "12 GPUs idle while 9 jobs wait for 16 GPUs"),
        (1, 1.0, 1.0, "1 GPU idle while 1 job waits for 1 GPU"),
        (2, 0.286, 2.571, "2.6 GPUs idle while 2 jobs wait for 0.3 GPUs"),
        (2, 4000.0, 0.0, "no GPU idle while 2 jobs wait for 4,000 GPUs"), (9, 16.0, None, "9 jobs wait for 16 GPUs"),
        (0, 0.0, 12.0, ""),
    ],
)  # fmt: skip
def test_the_headline_has_the_queue_beside_idle_gpus(jobs: int, gpus: float, idle: float | None, words: str) -> None:
    advice = advised({"gpus": 1.0})
    assert advice.summary.waiting is not None
    summary = replace(advice.summary, waiting=replace(advice.summary.waiting, jobs=jobs, gpus=gpus, idle_gpus=idle))
    story = story_of(replace(advice, summary=summary))
    assert waiting_words(summary) == words
    assert page_heading(story).endswith(words) and ("; " in page_heading(story)) == bool(words)
    assert "wait" not in mail_subject(story)


def test_a_fleet_without_a_queue_and_a_team_say_nothing_of_one() -> None:
    for advice in (advised(), split_by_team(advised({"gpus": 1.0}), lambda _: "nlp")["nlp"]):
        assert advice.summary.waiting is None and advice.waiting == ()
        assert "wait" not in page_heading(story_of(advice)) and "Queue" not in {
            t.label for t in tiles(story_of(advice))
        }
