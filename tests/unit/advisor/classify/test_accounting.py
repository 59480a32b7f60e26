"""Energy of hand-made hours: whose it was, at rest or not, against tokens; and the latency class that a service has."""

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.classify.accounting.energy import of_rows, phase_name
from skuwise.advisor.classify.accounting.workload_verdicts import with_latency
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.energy_types import EnergyPhase
from skuwise.advisor.core.verdict_types import Latency, Owner, Phase, WorkloadVerdict
from skuwise.advisor.telemetry import queries
from skuwise.agent.statistics.latency_bins import encode, spread
from skuwise.rules.policy.latency_classes import LatencyClasses, load_latency_classes
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.moves_builders import END, workload
from skuwise.tests.support.rulebooks import rulebook

NAN = float("nan")


def energy_row(power=NAN, joules=NAN, samples=60.0, seconds=60.0, limit=700.0):
    """(watts, measured share, counted share) of one row whose counter grew by `joules` over `samples` of 60."""
    counted = {
        "gpu_util_n": 60.0, "tensor_active_n": NAN, "dram_active_n": NAN, "power_watts_n": 60.0,
        "energy_joules_n": samples, "power_watts_mean": power, "energy_joules_mean": joules / samples if samples else 0,
    }  # fmt: skip
    return tuple(of_rows(np.array([seconds]), pd.DataFrame(counted, index=[0]), np.array([limit])).iloc[0])


@pytest.mark.parametrize(
    ("given", "watts", "measured", "counted"),
    [
        ({"power": 400.0, "joules": 24_000.0}, 400.0, 1.0, 1.0),
        # The counter's word goes over that of the readings.
        ({"power": 380.0, "joules": 24_000.0}, 400.0, 1.0, 1.0),
        ({"power": 400.0}, 400.0, 1.0, 0.0),
        # Half of the samples: the rest of the row is power times time.
        ({"power": 400.0, "joules": 12_000.0, "samples": 30.0}, 400.0, 1.0, 0.5),
        # A counter that steps every other second has half of the samples and all of the energy.
        ({"power": 400.0, "joules": 24_000.0, "samples": 30.0}, 400.0, 1.0, 1.0),
        # Without power, what the counter missed is not measured.
        ({"joules": 12_000.0, "samples": 30.0}, 400.0, 0.5, 1.0),
        ({}, NAN, 0.0, 0.0),
        # A step back that was taken for growth: more than the limit allows, or than power shows.
        ({"power": 400.0, "joules": 9e6}, 400.0, 1.0, 0.0),
        ({"power": 100.0, "joules": 24_000.0}, 100.0, 1.0, 0.0),
        ({"joules": 9e6}, NAN, 0.0, 0.0),
        # Without a limit, no board draws 3 kW.
        ({"joules": 150_000.0, "limit": NAN}, 2_500.0, 1.0, 1.0),
        ({"joules": 240_000.0, "limit": NAN}, NAN, 0.0, 0.0),
        ({"power": 400.0, "joules": -5.0}, 400.0, 1.0, 0.0),
        ({"power": 400.0, "joules": 0.0}, 400.0, 1.0, 0.0),
        # A power of 0 is no reading.
        ({"power": 0.0}, NAN, 0.0, 0.0),
        ({"power": 400.0, "joules": 100.0, "seconds": 0.0}, NAN, 0.0, 0.0),
        # The smallest time there is: drawn by a run of CI, where power times time lost its digits.
        ({"power": 840.75, "samples": 0.0, "seconds": 5e-324}, 840.75, 1.0, 0.0),
    ],
)
def test_a_rows_energy_is_its_counters_else_power_times_time_and_never_a_filled_zero(given, watts, measured, counted):
    assert energy_row(**given) == pytest.approx((watts, measured, counted), nan_ok=True)


def test_every_joule_has_one_place_and_rest_is_told_apart() -> None:
    b = FrameBuilder(hours=48)
    uuids = b.node(gpus=4)
    for reads, uuid in zip((TRAINING, HELD, DECODE, FREE), uuids, strict=True):
        b.use(reads, uuid=uuid)
    for name, n in (("trains", 0), ("holds", 1), ("one", 2), ("other", 2)):
        b.work(name, [("n1", uuids[n])])
    table = b.judged().energy
    places = table.fillna({"workload_id": ""}).groupby(["class", "idle", "workload_id", "phase"])
    kwh = {
        ("workload", False, "trains", "training"): 48 * 0.6, ("allocated_idle", True, "holds", "idle"): 48 * 0.11,
        ("shared", False, "", ""): 48 * 0.28, ("unallocated", True, "", ""): 48 * 0.07,
    }  # fmt: skip
    assert (places["joules"].sum() / 3.6e6).to_dict() == pytest.approx(kwh, rel=1e-6)
    assert set(table["hour"]) == set(range(24)) and table["counted_joules"].sum() == 0


def test_tokens_are_held_against_the_energy_of_the_same_hours_alone() -> None:
    b = FrameBuilder(hours=6)
    uuids = b.node(gpus=2)
    b.use({**DECODE, "power_watts": NAN}, uuid=uuids[0], start=0, end=1)
    b.use(DECODE, uuid=uuids[0], start=1)
    b.use(DECODE, uuid=uuids[1])
    b.work("w", [("n1", uuid) for uuid in uuids])
    # Hour 0 has no power of one GPU, hour 2 half of its tokens, hour 5 none.
    answer = [(0, 3600.0, 9e6), (1, 3600.0, 1e6), (2, 1800.0, 5e5), (3, 3600.0, 1e6), (4, 3500.0, 1e6)]
    rows = [("n1", "w", "vllm", START + (n + 1) * HOUR, seconds, tokens) for n, seconds, tokens in answer]
    columns = ["node", "workload_id", "engine", "ts", "seconds", "generated_tokens"]
    tokens = pd.DataFrame(rows, columns=columns).reindex(columns=list(queries.TOKENS.columns))
    token = judge(replace(b.frame(), tokens=tokens), rulebook()).tokens["w"]
    assert (token.tokens, token.hours) == (3e6, pytest.approx(3.0))
    assert token.joules == pytest.approx(3 * HOUR * 2 * 280.0, rel=1e-6)


def test_a_nodes_power_is_of_moments_in_which_every_gpu_was_measured() -> None:
    b = FrameBuilder(hours=20)
    uuids = b.node(gpus=2)
    b.use(DECODE, uuid=uuids[0])
    b.use(TRAINING, uuid=uuids[1], start=0, end=10)
    b.use({**TRAINING, "power_watts": NAN}, uuid=uuids[1], start=10)
    b.node("n2", gpus=1, gpu_count=2)
    b.use(FREE, node="n2", uuid="GPU-n2-0")
    power = b.judged().power
    node_power = power["n1"]
    assert (node_power.mean, node_power.p95, node_power.highest) == pytest.approx((880.0, 880.0, 880.0), rel=1e-5)
    assert node_power.rated == 1400.0 and node_power.interval_seconds == HOUR
    assert (power["n2"].mean, power["n2"].rated) == (None, None)


@pytest.mark.parametrize(
    ("kind", "bottleneck", "generates", "called"),
    [
        ("training", "compute", False, "training"), ("fine-tuning", "nvlink", False, "training"),
        ("online-inference", "hbm-bandwidth", True, "decode"), ("online-inference", "compute", True, "prefill"),
        ("online-inference", "hbm-bandwidth", False, "inference"), ("batch-inference", "mixed", True, "inference"),
        ("interactive", "idle", True, "interactive"), ("idle", "idle", True, "idle"),
        ("unknown", "idle", True, "not-told"),
    ],
)  # fmt: skip
def test_phases_are_called_as_people_call_them(kind: str, bottleneck: str, generates: bool, called: EnergyPhase):
    assert phase_name(Phase(0.0, 1.0, kind, bottleneck), generates=generates) == called


SHIPPED = load_latency_classes()
QUICK = {0.08: 0.5, 0.1: 0.95, 0.5: 1.0}
MIDDLING = {0.1: 0.1, 0.3: 0.8, 0.5: 0.95, 1.0: 1.0}
SLOW = {0.5: 0.1, 2.0: 0.995, 5.0: 1.0}
TOO_SLOW = {2.0: 0.1, 10.0: 1.0}
TOKENS = {0.02: 0.5, 0.04: 0.85, 0.05: 0.95, 0.1: 1.0}


def row(work: str, ts: float, first: dict[float, float] | None, token: dict[float, float] | None = None, count=2000.0):
    def bins(shares: dict[float, float] | None) -> str | None:
        below = {edge: share * count for edge, share in (shares or {}).items()}
        counts = spread({**below, 20.0: count, inf: count})
        return encode(counts) if shares and counts else None

    return {"workload_id": work, "latency_ts": ts, "first_token_bins": bins(first), "output_token_bins": bins(token)}


def latencies(given: list[WorkloadVerdict], *rows: dict[str, object], classes: LatencyClasses = SHIPPED):
    columns = ["workload_id", "latency_ts", "first_token_bins", "output_token_bins"]
    return [w.latency for w in with_latency(given, pd.DataFrame(rows, columns=columns), classes)]


def latency_of(w: WorkloadVerdict, *rows: dict[str, object], classes: LatencyClasses = SHIPPED) -> Latency | None:
    return latencies([w], *rows, classes=classes)[0]


@pytest.mark.parametrize(
    ("first", "token", "label"),
    [
        (QUICK, TOKENS, "interactive"),
        (QUICK, None, "interactive"),
        (QUICK, {0.05: 0.5, 0.1: 1.0}, "documents"),  # its tokens come too slowly to be read along
        (MIDDLING, TOKENS, "documents"),
        (SLOW, TOKENS, "waited-for"),
        (TOO_SLOW, TOKENS, None),
    ],
)
def test_the_strictest_class_that_is_kept_today_is_the_class(first, token, label) -> None:
    latency = latency_of(workload(), row("w-chat", END, first, token))
    assert latency is not None and (latency.label, latency.basis) == (label, "measured")
    assert latency.limits == (dict(SHIPPED.classes[label].limits) if label else {})
    assert latency.evidence[0].code == ("latency-class-kept" if label else "latency-class-none")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "no engine histogram"),
        ([("w-chat", END, QUICK, None, 60.0)], "too few"),
        ([("w-chat", END, None, TOKENS)], "no engine histogram"),
    ],
)
def test_what_nobody_measured_is_taken_from_its_kind_and_said_so(rows: list[tuple], why: str) -> None:
    latency = latency_of(workload(), *(row(*part) for part in rows))
    assert latency is not None
    assert (latency.label, latency.basis, latency.first_token is None) == ("waited-for", "kind", why != "too few")
    assert why in latency.evidence[0].text
    if latency.first_token is not None:
        assert latency.first_token.p50 is not None and latency.first_token.p99 is None


@pytest.mark.parametrize("kind", ["training", "fine-tuning", "interactive", "idle", "unknown"])
def test_what_nobody_waits_for_by_the_token_has_none(kind: str) -> None:
    assert latency_of(workload(kind=kind), row("w-chat", END, QUICK)) is None


def test_a_sites_word_comes_first_whatever_is_measured(tmp_path: Path) -> None:
    services = "services:\n  a: {class: interactive, match: {namespace: [chat]}, reason: people type}\n"
    (tmp_path / "latency_classes.yaml").write_text(services)
    classes = load_latency_classes(tmp_path)
    serves, trains = (workload(owner=Owner(namespace="chat"), kind=kind) for kind in ("online-inference", "training"))
    latency = latency_of(serves, row("w-chat", END, TOO_SLOW), classes=classes)
    assert latency is not None and (latency.label, latency.basis) == ("interactive", "site")
    assert latency.evidence[0].text == "Latency class interactive: people type (site rules, entry a)."
    assert latency_of(trains, classes=classes) is not None


def test_figures_are_of_the_busy_hours_and_of_all_replicas_of_the_series() -> None:
    replicas = [workload("chat", ("n1",)), workload("chat", ("n2",), id="w-chat-2")]
    noon = [row("w-chat", END, MIDDLING), row("w-chat-2", END - 10, MIDDLING)]
    night = [row("w-chat", END - 3600 * n, QUICK, count=100.0) for n in range(1, 12)]
    latency, two = latencies(replicas, *noon, *night)
    assert latency == two and latency is not None and latency.first_token is not None
    assert (latency.label, latency.busy_hours, latency.first_token.counted) == ("documents", 1.0, 4000.0)
