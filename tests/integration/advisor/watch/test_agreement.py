"""`advise`, `watch`, `idle` and `job` say the same of every GPU of the third generator's fleets."""

from pathlib import Path

import pytest
from skuwise.advisor.cards.build import rests_of
from skuwise.advisor.classify.judge import judge_rows, measured_rows
from skuwise.advisor.telemetry.source import Databases
from skuwise.advisor.watch.fleet import WatchedFleet
from skuwise.advisor.watch.idle_answer import Target, idle_answers
from skuwise.advisor.watch.reading import read_recent
from skuwise.benchmarks.generators.third.agent_fleet import plan_series
from skuwise.benchmarks.generators.third.agent_store import write_node
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.watch_readings import CRITERIA

HOUR = 3600.0
ASKED = 2 * HOUR
BOOK = rulebook()
FLEETS = {fleet.workloads[0].archetype.name: fleet for fleet in plan_series(1005, 1_789_999_200.0)}


@pytest.mark.parametrize(
    "name",
    ["held", "never-used", "notebook", "dev-pair", "nightly", "lora", "embedding", "train-launch", "llm-no-nights"],
)
def test_all_commands_agree_on_every_gpu(name: str, tmp_path: Path) -> None:
    fleet = FLEETS[name]
    write_node(fleet, tmp_path)
    end = fleet.start + fleet.seconds
    source = Databases((tmp_path,))
    measured = measured_rows(source.read(BOOK.catalog, since=fleet.seconds, until=end, now=end), BOOK)
    about = {"now": end, "until": end, "past_seconds": fleet.seconds}
    recent = read_recent(source, BOOK, lookback_seconds=ASKED + 2 * HOUR, **about)
    watched = WatchedFleet(recent, CRITERIA)
    gpu, asked = measured.frame.gpu, watched.spans.since(end - ASKED)
    idle = {}
    for place, recent_gpu in enumerate(recent.gpus):
        part = ((gpu["gpu_uuid"] == recent_gpu.uuid) & (gpu["ts"] > end - ASKED)).to_numpy(bool)
        advised = measured.rows[part]
        (answer,) = idle_answers(recent, [Target(recent_gpu.uuid, gpus=(place,))], ASKED, CRITERIA)
        idle[recent_gpu.uuid] = answer.state == "idle"
        assert answer.state in {"idle", "busy"}
        assert idle[recent_gpu.uuid] == bool(advised["rests"].all()) == bool(watched.gpus.rest[place, asked].all())
        assert idle[recent_gpu.uuid] or not advised["idle"].all()
    verdicts = judge_rows(measured, BOOK)
    for workload in verdicts.workloads:
        hours, since, _ = rests_of(verdicts, workload)
        if hours is not None and workload.end >= end - 60:
            rested = since is not None and since <= end - ASKED
            assert rested == all(idle[uuid] for uuid in workload.gpus)
