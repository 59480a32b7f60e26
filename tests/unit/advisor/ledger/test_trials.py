# pyright: reportOptionalMemberAccess=false, reportIndexIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportOptionalIterable=false, reportGeneralTypeIssues=false
"""A trial in the ledger: what it waits for, when it ends and with what, and what the command says before it begins."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import SavingsBaseline
from skuwise.advisor.core.work_hours import WorkHour
from skuwise.advisor.ledger.entries import LedgerEntry, LedgerEvent, Proposal
from skuwise.advisor.ledger.formatting import as_dict, as_text, entry_text, state_words
from skuwise.advisor.ledger.records import EventFigures, TrialResult, from_json, to_json
from skuwise.advisor.ledger.transitions import ledger_events
from skuwise.advisor.ledger.trials.start import outlook
from skuwise.advisor.moves.tracking.observation import Measure, Observation, PredictionSnapshot
from skuwise.tests.support.ledger_builders import DAY, L40S, RATIO, ground, moved_run, seen
from skuwise.tests.support.moves_builders import END, IB, START, workload

HOUR = 3600.0
BEGUN = END - 5 * DAY
OWN = ground(target=L40S, time_ratio=RATIO)
REST = workload("chat", ("n1",), id="w-rest")
TRIED = moved_run()


def trial_entry(own: PredictionSnapshot = OWN, replica: str | None = None, at: float = BEGUN) -> LedgerEntry:
    proposal = Proposal("r-1", "move-sku", "chat", "a", "b", None, 0.0, "cash-now", "low", False, "t", "fleet.db", own)
    begun = from_json(EventFigures, json.dumps({"trial": {"replica": replica} if replica else {}}))
    return LedgerEntry(proposal, START, START, (LedgerEvent("trial", at, "ann", figures=begun),))


def hours(run, busy: float | None = 0.4, end: float = END, **told: float) -> tuple[WorkHour, ...]:
    """A run's hours, a little apart as hours are."""
    wave = np.random.default_rng(len(run.id))
    ends = np.arange(np.ceil(run.start / HOUR) + 1, min(run.end, end) / HOUR + 1) * HOUR
    return tuple(
        WorkHour(float(one), HOUR, len(run.gpus), busy and busy * float(np.exp(wave.normal(0, 0.02))), **told)
        for one in ends
    )


TOKENS = 800.0  # per second of each run


def watched(runs, end: float = END, **own: tuple[WorkHour, ...]) -> Observation:
    """What telemetry shows of these runs; `own`: hours by id, with dashes for the underscores."""
    work = {run.id: hours(run, end=end, tokens=TOKENS) for run in runs} | {
        key.replace("_", "-"): one for key, one in own.items()
    }
    return replace(seen(runs, end=end), work=lambda ids: {key: work[key] for key in ids})


def event_of(entry: LedgerEntry, observed: Observation, now: float = END) -> LedgerEvent | None:
    events = [event for _, event in ledger_events([entry], observed, now) if event.act in ("tried", "trial")]
    return events[0] if events else None


def code_of(entry: LedgerEntry, observed: Observation) -> str:
    event = event_of(entry, observed)
    assert event is not None
    assert event.act == "trial"
    return event.figures.progress.code


def after(entry: LedgerEntry, event: LedgerEvent | None) -> LedgerEntry:
    assert event is not None
    return replace(entry, events=(*entry.events, event))


# ---- the verdict


@pytest.mark.parametrize(
    ("busy", "verdict"), [(0.4, "as predicted"), (0.44, "as predicted"), (0.7, "worse"), (0.25, "better")]
)
def test_a_replica_beside_the_rest_for_a_day_gets_a_verdict(busy: float, verdict: str) -> None:
    event = event_of(trial_entry(), watched([REST, TRIED], w_chat=hours(TRIED, busy, tokens=TOKENS)))
    told = event.figures.tried
    assert (event.act, event.by, told.verdict, told.basis) == ("tried", "skuwise", verdict, "tokens-per-busy-second")
    assert told.hours == pytest.approx(96.0)
    assert told.interval.p10 < told.time_ratio < told.interval.p90
    assert f"The trial went {verdict}" in event.why
    assert f"x{told.time_ratio:.2f} ({told.interval.p10:.2f} to {told.interval.p90:.2f}) the time" in event.why
    assert "measured by GPU-seconds of work per token (predicted" in event.why
    assert "96 h next to the other replicas." in event.why


def test_energy_for_each_token_stands_beside_the_time() -> None:
    rest = hours(REST, tokens=800.0, running=40.0, watts=400.0)
    tried = hours(TRIED, tokens=800.0, running=40.0, watts=300.0)
    told = event_of(trial_entry(), watched([REST, TRIED], w_rest=rest, w_chat=tried)).figures.tried
    assert told.energy_ratio == pytest.approx(0.75)
    assert told.time_ratio == pytest.approx(1.0, abs=0.02)


def test_a_trial_without_hours_at_hand_waits() -> None:
    """`ledger` commands and shards have an advice without its telemetry."""
    assert event_of(trial_entry(), seen([REST, TRIED])) is None


# ---- what it waits for, with its code


def test_what_a_trial_waits_for_has_a_code_and_a_sentence() -> None:
    entry, late = trial_entry(), replace(TRIED, start=END - 20 * HOUR)
    assert code_of(entry, watched([REST])) == "trial-none-on-target"
    assert code_of(entry, watched([REST, late])) == "trial-hours-short"
    assert code_of(entry, watched([TRIED])) == "trial-no-rest"
    assert code_of(entry, watched([REST, TRIED], w_chat=())) == "trial-no-hours"
    third = replace(REST, node_sku="azure/third")
    assert code_of(entry, watched([third, TRIED])) == "trial-no-rest"
    full = hours(REST, 0.97, tokens=TOKENS)
    assert code_of(entry, watched([REST, TRIED], w_rest=full)) == "trial-saturated"
    assert code_of(entry, watched([REST, TRIED], w_rest=hours(REST, 0.4))) == "trial-split-unknown"
    told = watched([REST, TRIED], w_rest=hours(REST, None, tokens=TOKENS))
    assert code_of(entry, told) == "trial-load-unknown"
    assert code_of(entry, watched([REST, TRIED], w_rest=hours(REST, None))) == "trial-nothing-told"
    shared = replace(REST, shared=True)
    assert code_of(entry, watched([shared, TRIED])) == "trial-gpus-shared"
    assert code_of(trial_entry(replica="canary"), watched([REST, TRIED])) == "trial-replica-unknown"
    assert code_of(trial_entry(replica="n1"), watched([REST, TRIED])) == "trial-replica-elsewhere"


@pytest.mark.parametrize("name", ["chat-7-x", "w-chat", "p1", "chat"])
def test_a_replica_is_named_by_its_pod_id_node_or_name(name: str) -> None:
    observed = replace(watched([REST, TRIED]), pods={"w-chat": "chat-7-x"})
    assert event_of(trial_entry(replica=name), observed).act == "tried"


def test_a_hostile_name_is_told_harmlessly_and_short(capsys) -> None:
    name = "a\x1b[31m\ud800" + "x" * 5000
    entry = trial_entry(replica=name)
    event = event_of(entry, watched([REST, TRIED]))
    assert len(event.why) < 400
    event.why.encode("utf-8")
    text = entry_text(after(entry, event), END, 100)
    assert "\x1b" not in text
    assert "No replica is named" in text


def test_progress_says_hours_basis_and_when_a_verdict_is_due_and_is_noted_by_sixes() -> None:
    late = replace(TRIED, start=END - 20 * HOUR)
    entry = trial_entry()
    first = event_of(entry, watched([REST, late]))
    told = first.figures.progress
    assert (told.hours, told.basis, told.due) == (20.0, "tokens-per-busy-second", END + 4 * HOUR)
    entry = after(entry, first)
    assert event_of(entry, watched([REST, late])) is None
    two = watched([replace(REST, end=END + 2 * HOUR), replace(late, end=END + 2 * HOUR)], END + 2 * HOUR)
    assert event_of(entry, two, END + 2 * HOUR) is None
    six = watched([replace(REST, end=END + 3 * HOUR), replace(late, start=END - 25 * HOUR)], END + 3 * HOUR)
    assert event_of(entry, six, END + 3 * HOUR).act == "tried"


def test_a_trial_goes_on_through_its_own_progress() -> None:
    entry = trial_entry()
    for observed in (watched([REST]), watched([REST, replace(TRIED, start=END - 20 * HOUR)])):
        entry = after(entry, event_of(entry, observed))
    begun, noted = entry.open_trial
    assert (begun.at, begun.by, len(noted)) == (BEGUN, "ann", 2)
    assert state_words(entry, END) == "proposed, on trial"
    done = after(entry, event_of(entry, watched([REST, TRIED])))
    assert done.open_trial is None
    assert event_of(done, watched([REST, TRIED])) is None


# ---- it ends


@pytest.mark.parametrize(
    ("own", "code"),
    [({"w_rest": hours(REST, 0.97, tokens=TOKENS)}, "trial-saturated"), ({"w_chat": ()}, "trial-no-hours"),
     ({"w_rest": hours(REST)}, "trial-split-unknown"), ({}, "trial-too-wide")],
)  # fmt: skip
def test_after_a_week_a_trial_ends_undecided_with_the_reason(own, code: str) -> None:
    entry = trial_entry(at=END - 7 * DAY)
    told = {**own}
    if code == "trial-too-wide":  # the measured interval lies over the upper limit, 1.25 and 5 %
        told = {"w_chat": hours(TRIED, 0.4 * 1.27, tokens=TOKENS)}
    event = event_of(entry, watched([REST, TRIED], **told))
    assert event.act == "tried"
    found = event.figures.undecided
    assert (event.figures.tried, found.code) == (None, code)
    assert event.why.startswith("The trial ended undecided after 7 days")
    assert found.reason in event.why
    ended = after(entry, event)
    assert as_dict(ended, END)["trial_result"]["verdict"] == "undecided"
    assert event_of(ended, watched([REST, TRIED], **told)) is None
    earlier = replace(entry, events=(replace(entry.events[0], at=END - 6.9 * DAY),))
    assert event_of(earlier, watched([REST, TRIED], **told)).act == "trial"


def test_a_clock_that_ran_ahead_neither_stops_nor_ends_a_trial() -> None:
    entry = trial_entry(at=END + 400 * DAY)
    assert event_of(entry, watched([REST, TRIED])).act == "tried"
    first = event_of(entry, watched([REST]))
    assert first.figures.progress.code == "trial-none-on-target"
    entry = after(entry, first)
    later = END + 7 * DAY
    rest = replace(REST, end=later)
    assert event_of(entry, watched([rest], END + 6 * DAY), later) is None  # nothing new
    assert event_of(entry, watched([rest], later), later).figures.undecided.code == "trial-none-on-target"


def test_once_all_replicas_moved_the_trial_is_over() -> None:
    done = after(trial_entry(), LedgerEvent("done", END, "skuwise"))
    assert event_of(done, watched([REST, TRIED])) is None
    assert "the other replicas moved before it had a result" in entry_text(done, END, 200)


# ---- jobs


def job(run, period: float, **changes):
    return replace(run, features={"period_seconds": period, "period_share": 0.9}, **changes)


def test_runs_of_a_job_are_compared_by_their_steps_one_after_the_other() -> None:
    own = ground(target=L40S, time_ratio=RATIO, serving=False)
    before = job(REST, 4.0, end=BEGUN - DAY)
    event = event_of(trial_entry(own), watched([before, job(TRIED, 6.0)]))
    told = event.figures.tried
    assert (told.verdict, told.basis, told.time_ratio) == ("worse", "step-length", pytest.approx(1.5))
    assert told.interval.p10 < 1.5 < told.interval.p90
    assert code_of(trial_entry(own), watched([before])) == "trial-none-on-target"
    assert code_of(trial_entry(own), watched([before, replace(TRIED, features={})])) == "trial-no-steps"
    wider = job(TRIED, 6.0, gpus=tuple(f"G{n}" for n in range(16)))
    assert code_of(trial_entry(own), watched([before, wider])) == "trial-gpus-differ"
    kept = replace(own, before=Measure(8.0, 5840.0, period_seconds=4.0))
    assert event_of(trial_entry(kept), watched([job(TRIED, 6.0)])).figures.tried.time_ratio == pytest.approx(1.5)
    both = replace(kept, before=Measure(16.0, 11680.0, period_seconds=4.0), replicas=("one", "two"))
    assert event_of(trial_entry(both), watched([job(TRIED, 6.0)])).act == "tried"
    assert code_of(trial_entry(replace(both, replicas=())), watched([job(TRIED, 6.0)])) == "trial-gpus-differ"


def test_runs_of_a_job_that_overlap_are_compared_by_the_gpus_of_each() -> None:
    own = ground(target=L40S, time_ratio=RATIO, serving=False)
    one = job(REST, 4.0, id="ja", end=BEGUN - DAY)
    two = job(REST, 4.0, id="jb", end=BEGUN - DAY, gpus=tuple(f"GPU-b{n}" for n in range(len(REST.gpus))))
    event = event_of(trial_entry(own), watched([one, two, job(TRIED, 6.0)]))
    assert (event.figures.tried.verdict, event.figures.tried.time_ratio) == ("worse", pytest.approx(1.5))
    assert "96 h on the target." in event.why
    wider = job(REST, 9.0, id="jc", end=BEGUN - DAY, gpus=tuple(f"G{n}" for n in range(16)))
    event = event_of(trial_entry(own), watched([one, wider, job(TRIED, 6.0)]))
    assert event.figures.tried.time_ratio == pytest.approx(1.5)  # a run on more GPUs tells nothing of it


# ---- before it begins


MANY = ("chat-0", "chat-1")
COUNTED = Measure(16.0, 1.0, busy=0.4, busy_seconds_per_token=0.002)
INSTANCES = SavingsBaseline(1.0, mig_profile="3g.40gb")


@pytest.mark.parametrize(
    ("changes", "basis", "warnings"),
    [
        ({"before": Measure(16.0, 1.0, busy=0.4, busy_seconds_per_token=0.002), "queue": True},
         "tokens-at-equal-concurrency", []),
        ({"before": Measure(16.0, 1.0, busy=0.4, busy_seconds_per_token=0.002)}, "tokens-per-busy-second", []),
        ({"before": Measure(16.0, 1.0, busy=0.99), "queue": True, "requests": True}, "requests-at-equal-concurrency",
         []),
        ({"before": Measure(16.0, 1.0, busy=0.4), "requests": True}, "requests-per-busy-second", []),
        ({"before": Measure(16.0, 1.0, busy=0.99, watts=400.0, rest_watts=90.0), "queue": True,
          "target": replace(L40S, gpu_sku="H100-SXM5")}, "energy-per-busy-second", ["trial-by-energy"]),
        ({"before": COUNTED, "queue": True, "yardstick": INSTANCES}, "tokens-at-equal-concurrency", []),
        ({"before": COUNTED, "replicas": ()}, "tokens-per-busy-second", ["trial-replicas-unknown"]),
        ({"before": Measure(8.0, 1.0, period_seconds=4.0), "serving": False}, "step-length", ["trial-of-a-job"]),
    ],
)  # fmt: skip
def test_the_outlook_says_what_a_trial_will_rest_on(changes, basis: str, warnings: list[str]) -> None:
    told = outlook(replace(OWN, **{"replicas": MANY, **changes}), None)
    assert (told.refused, told.basis) == (None, basis)
    assert [one.code for one in told.warnings] == warnings


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"before": Measure(16.0, 1.0, busy=0.4), "replicas": ("chat-0",)}, "trial-single-replica"),
        ({"before": replace(COUNTED, busy=0.99)}, "trial-saturated"),
        ({"before": Measure(16.0, 1.0, busy=0.4)}, "trial-split-unknown"),
        ({"before": Measure(16.0, 1.0, busy=0.4), "queue": True}, "trial-split-unknown"),
        ({"before": COUNTED, "yardstick": INSTANCES}, "trial-load-unknown"),
        ({"before": Measure(16.0, 1.0, busy=0.99, watts=400.0, rest_watts=90.0), "queue": True,
          "target": replace(L40S, gpu_sku="H100-SXM5"), "yardstick": INSTANCES}, "trial-split-unknown"),
        ({"before": Measure(16.0, 1.0, period_seconds=4.0), "serving": False, "target": replace(L40S, gpu_count=8)},
         "trial-job-gpus-differ"),
        ({"before": Measure(16.0, 1.0)}, "trial-nothing-told"),
        ({"before": None}, "trial-nothing-told"),
        ({"before": Measure(16.0, 1.0, busy=0.9), "serving": False}, "trial-job-without-steps"),
    ],
)  # fmt: skip
def test_what_can_never_have_a_verdict_is_refused_with_a_remedy(changes, code: str) -> None:
    told = outlook(replace(OWN, **{"replicas": MANY, **changes}), None)
    assert told.refused.code == code
    assert told.remedy.endswith(".")


def test_a_name_that_is_not_known_is_told_and_one_that_is_not() -> None:
    own = replace(OWN, replicas=MANY, before=COUNTED)
    assert outlook(own, "chat-1").warnings == ()
    assert outlook(own, "n1").warnings == ()
    (one,) = outlook(own, "chat-2").warnings
    assert one.code == "trial-name-not-seen"
    assert "chat-0 and chat-1" in one.text


# ---- for people and programs


def test_list_show_and_json_have_the_state_of_a_trial() -> None:
    entry = trial_entry(replica="p1")
    entry = after(entry, event_of(entry, watched([REST, replace(TRIED, start=END - 20 * HOUR)])))
    shown = " ".join(entry_text(entry, END, 100).split())
    assert "20 of 24 h measured. Basis: GPU-seconds of work per token." in shown
    assert "Verdict on" in shown
    assert shown.count("20 of 24 h") == 1  # not in the history again
    assert "r-1: on trial: Started on" in as_text([entry], 0, END, 100)
    told = as_dict(entry, END)["trial_result"]
    assert (told["verdict"], told["code"], told["hours"], told["replica"]) == (None, "trial-hours-short", 20.0, "p1")
    assert told["due"].endswith("Z")
    entry = after(entry, event_of(entry, watched([REST, TRIED])))
    told = as_dict(entry, END)["trial_result"]
    assert (told["verdict"], told["basis"], told["hours"]) == ("as predicted", "tokens-per-busy-second", 96.0)
    assert told["interval"]["p10"] < told["time_ratio"] < told["interval"]["p90"]
    assert told["due"] is None
    assert as_dict(trial_entry(), END)["trial_result"]["verdict"] is None
    untried = replace(trial_entry(), events=())
    assert as_dict(untried, END)["trial_result"] is None


def test_what_an_older_version_wrote_is_read() -> None:
    old = '{"tried":{"verdict":"worse","time_ratio":1.5,"hours":30.0,"by":"step length"}}'
    told = from_json(EventFigures, old)
    assert told.tried == TrialResult("worse", 1.5, 30.0, "step length")
    entry = after(trial_entry(), LedgerEvent("tried", END, "skuwise", why="It went.", figures=told))
    found = as_dict(entry, END)["trial_result"]
    assert (found["verdict"], found["time_ratio"], found["interval"], found["basis"]) == ("worse", 1.5, None, None)
    bare = json.loads(to_json(OWN))
    del bare["replicas"]
    kept = from_json(PredictionSnapshot, json.dumps(bare))
    assert (kept.replicas, kept.queue, kept.requests) == ((), None, None)
    assert kept.source.node_sku == IB
