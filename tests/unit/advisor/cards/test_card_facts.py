"""What a card says of jobs whose truth is known: good, hung, never started, short, partly used, shared, MIG."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skuwise.advisor.cards.build import with_kept
from skuwise.tests.support.card_cases import HOUR, MINUTE, busy_then_idle, card, only_card, window_of
from skuwise.tests.support.frame_builder import START, TRAINING, FrameBuilder


def test_a_job_that_works_has_nothing_to_change() -> None:
    told = only_card(window_of(busy_then_idle(6, 0)))
    assert told.next_step.code == "card-nothing"
    assert told.gpu_hours == pytest.approx(48.0)
    assert told.use.idle_gpu_hours == 0.0 and told.use.idle_since is None and told.use.unused == 0
    assert told.use.sm_active == pytest.approx(0.85, abs=0.01)
    assert told.cost_usd == pytest.approx(48 * 98.32 / 8, rel=0.01) and told.price is not None
    assert "list price" in told.price.text and told.price.as_of in told.price.text


def test_a_job_that_hangs_is_told_with_its_idle_hours_and_its_last_activity() -> None:
    told = only_card(window_of(busy_then_idle(5, 3)))
    assert told.state == "running" and told.next_step.code == "card-stopped"
    assert told.use.idle_gpu_hours == pytest.approx(24.0, abs=0.5)
    assert told.use.idle_since == pytest.approx(START + 5 * HOUR, abs=2 * MINUTE)
    assert told.idle_usd == pytest.approx(24 * 98.32 / 8, rel=0.03)


def test_gpus_that_did_nothing_are_counted() -> None:
    told = only_card(window_of(busy_then_idle(2, 0, used=4)))
    assert told.next_step.text == "Reduce to 4 GPUs: 4 of 8 did nothing."
    assert told.use.idle_gpu_hours == pytest.approx(8.0)


def test_forty_minutes_are_enough_for_facts_and_one_is_not() -> None:
    built = FrameBuilder(hours=1)
    uuids = built.node("n1", gpus=1)
    built.use(TRAINING, uuid=uuids[0], interval=MINUTE)
    built.work("w-1", [("n1", uuids[0])], end=40 / 60, scheduler="slurm", job_id="7")
    told = only_card(window_of(built))
    assert told.elapsed_seconds == pytest.approx(2400) and told.next_step.code == "card-nothing"
    assert len(told.course.sm_active) == 40 and sum(told.judged.time_shares.values()) == pytest.approx(1)

    built.workloads.clear()
    built.uses.clear()
    built.work("w-1", [("n1", uuids[0])], end=1 / 60, scheduler="slurm", job_id="7")
    assert only_card(window_of(built)).next_step.code == "card-too-little"


def test_missing_is_told_with_its_reason_and_is_no_zero() -> None:
    built = FrameBuilder(hours=2)
    uuids = built.node("n1", gpus=1, sku=None, name_of_gpu="Unknown GPU")
    bare = {"gpu_util": 0.5, "mem_used_bytes": 1e9}
    built.use(bare, uuid=uuids[0], interval=MINUTE)
    built.work("w-1", [("n1", uuids[0])])
    told = only_card(window_of(built))
    assert told.use.sm_active is None and told.missing["sm_active"]
    assert told.kwh is None and told.missing["kwh"]
    assert told.cost_usd is None and told.idle_usd is None and told.missing["cost_usd"]
    assert told.use.fabric is None and told.missing["fabric"]


def test_kept_runs_of_the_series_count_where_telemetry_has_fewer() -> None:
    now = card(compared=None)
    before = [replace(now, id=f"w-{n}", start=now.start - n * HOUR, gpu_hours=float(n)) for n in (1, 2, 3)]
    compared = with_kept(now, [now, *before]).compared
    assert compared is not None and compared.runs == 3 and compared.gpu_hours == 2.0
    assert with_kept(now, [now]).compared is None
