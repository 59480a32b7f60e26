"""Running totals: each tick once, missing is not zero, and a page made from them."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from skuwise.agent import metrics
from skuwise.agent.model import Absence, AgentStats, Event, FabricPort, Gpu, Node, Probe, Tick, Workload, WorkloadUse
from skuwise.agent.service.metrics_page import make_page
from skuwise.agent.service.totals import MOMENTS, Totals
from skuwise.agent.statistics.rollup_stats import Samples, roll_gpu

GPU = Gpu("GPU-a", 0, "NVIDIA H100", "H100-SXM5", mem_total_bytes=100, nvlink_bytes_per_second=100.0)
PORT = FabricPort("mlx5_0", 1, "compute", "InfiniBand", 1000.0)


def totals_of(*ticks: Tick, survey: Probe | None = None, node: Node | None = None) -> Totals:
    totals = Totals(node or Node("n1", "c1"), 1.0, monotonic=lambda: 0.0)
    totals.set_survey(survey or Probe((GPU,), (PORT,), ()))
    for tick in ticks:
        totals.add_tick(tick)
    return totals


def tick(number: int, values: Mapping[str, float], seconds: float = 1.0, **other: object) -> Tick:
    return Tick(1.7e9 + number, seconds, gpus={GPU.uuid: values}, **other)  # type: ignore[arg-type]


def page(totals: Totals) -> str:
    return generate_latest(make_page(totals, {"scraped": 1})).decode()  # type: ignore[arg-type] - it only collects


def value(text: str, name: str, **labels: str) -> float | None:
    """The one series of that name with those labels; None where there is none."""
    matches = []
    for line in text.splitlines():
        match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if match and all(f'{k}="{v}"' in (match[1] or "") for k, v in labels.items()):
            matches.append(float(match[2]))
    assert len(matches) <= 1, matches
    return matches[0] if matches else None


def values(text: str, *names: str) -> list[float | None]:
    """The series ``skuwise_NAME``, each the one of its name."""
    return [value(text, f"skuwise_{name}") for name in names]


def full() -> Totals:
    """Two minutes of all metrics."""
    fabric = {metric.name: 2.0 for metric in metrics.FABRIC_METRICS}
    host = {metric.name: 0.5 for metric in metrics.HOST_METRICS}
    totals = totals_of()
    for second in range(120):
        values = {metric.name: 0.4 + 0.1 * (second % 5) for metric in metrics.GPU_METRICS} | {"throttle_reasons": 4.0}
        events = (Event(1.0, GPU.uuid, "xid", 79),) if second == 60 else ()
        other = {"fabric": {PORT.key: fabric}, "port_states": {PORT.key: "ACTIVE"}, "host": host, "events": events}
        totals.add_tick(tick(second, values, **other))
    totals.set_absences([Absence("gpu", GPU.uuid, "fp64_active", "no-gpm")])
    totals.set_uses([Workload("w1", "s1", "name", "slurm")], [WorkloadUse("w1", GPU.uuid, "process")])
    totals.add_stats(AgentStats(1.0, 0.1, 1, 0.1, 0.1, 0))
    return totals


def test_a_mean_is_the_integral_over_its_own_observed_seconds() -> None:
    still = tick(1, {"sm_active": 0.5, "power_watts": 100.0})
    text = page(totals_of(still, tick(2, {"power_watts": 300.0, "energy_joules": 600.0}, 3.0)))
    names = "gpu_sm_active_seconds_total", "gpu_sm_active_observed_seconds_total", "gpu_tensor_active_seconds_total"
    assert values(text, *names) == [0.5, 1.0, None]
    names = "gpu_power_joules_total", "gpu_power_observed_seconds_total", "gpu_observed_seconds_total"
    assert values(text, *names) == [1000.0, 4.0, 4.0]
    assert values(text, "gpu_power_watts", "gpu_sm_active_ratio") == [300.0, None]  # a gauge describes now
    # The energy counter steps rarely: its mean power shows how long a step took.
    assert values(text, "gpu_energy_joules_total", "gpu_energy_observed_seconds_total") == [600.0, 2.0]
    assert values(page(totals_of(still)), "gpu_energy_joules_total") == [None]


def test_every_metric_is_exported_with_the_time_behind_it() -> None:
    text = page(full())
    for integral in (*metrics.GPU_INTEGRALS, *metrics.FABRIC_INTEGRALS, *metrics.HOST_INTEGRALS):
        total, observed = value(text, integral.total), value(text, integral.observed)
        assert observed == 120 and total, integral
    left = {metric.name for metric in metrics.GPU_METRICS} - {integral.metric for integral in metrics.GPU_INTEGRALS}
    assert left == {"energy_joules", "throttle_reasons"}  # a counter and a bitmask
    assert value(text, "skuwise_gpu_mem_used_byte_seconds_total") == pytest.approx(0.6 * 120)


def test_dynamics_agree_with_the_rollup_of_the_same_ticks() -> None:
    pattern = [0.9, 0.8, 0.02, 0.01, 0.7, 0.95]
    seconds = range(120)
    sm = [pattern[s % 6] for s in seconds]
    nvlink = [60.0 if s % 6 in (2, 3) else 4.0 for s in seconds]
    ticks = [
        tick(second, {"sm_active": active, "tensor_active": active / 2, "nvlink_tx_bytes_per_second": traffic}
             | {"nvlink_rx_bytes_per_second": traffic / 2, "throttle_reasons": 0x24 if active > 0.75 else 1})
        for second, active, traffic in zip(seconds, sm, nvlink, strict=True)
    ]  # fmt: skip
    text = page(totals_of(*ticks))
    columns = {name: [t.gpus[GPU.uuid][name] for t in ticks] for name in ticks[0].gpus[GPU.uuid]}
    row = roll_gpu(Samples([t.ts for t in ticks], [1.0] * 120, columns), Gpu("", 0, ""), "hour")
    names = "sm_active_observed_seconds", "sm_active_seconds", "sm_active_squared_seconds", "busy_seconds"
    sums = values(text, *(f"gpu_{name}_total" for name in (*names, "throttled_seconds")))
    observed, total, squared, busy, throttled = (value or math.nan for value in sums)
    assert busy / observed == pytest.approx(row["duty"])
    deviation = math.sqrt(squared / observed - (total / observed) ** 2)
    assert deviation / (total / observed) == pytest.approx(row["sm_active_cv"])
    assert throttled / observed == pytest.approx(row["throttled_fraction"])
    assert value(text, "skuwise_gpu_throttle_reason_seconds_total", reason="sw_power_cap") == throttled
    assert value(text, "skuwise_gpu_throttle_reason_seconds_total", reason="gpu_idle") == 120 - throttled
    sums = values(text, *(f"{name}_total" for name in MOMENTS["nvlink"]))
    n, x, y, xx, yy, xy = (value or math.nan for value in sums)
    correlation = (xy / n - x * y / n**2) / math.sqrt((xx / n - (x / n) ** 2) * (yy / n - (y / n) ** 2))
    assert correlation == pytest.approx(row["tensor_nvlink_correlation"])
    assert value(text, "skuwise_gpu_period_seconds") == pytest.approx(6.0, abs=0.1)
    assert value(text, "skuwise_gpu_idle_run_seconds") == 0.0
    assert value(text, "skuwise_gpu_sm_active_distribution_ratio_bucket", le="0.8") == 80
    assert value(text, "skuwise_gpu_sm_active_distribution_ratio_count") == 120
    assert value(text, "skuwise_gpu_nvlink_distribution_ratio_bucket", le="0.05") == 80


def test_ports_tell_silence_from_absence() -> None:
    quiet = {"tx_bytes_per_second": 0.5, "rx_bytes_per_second": 0.0}
    totals = totals_of(
        Tick(1.0, 1.0, fabric={PORT.key: quiet}, port_states={PORT.key: "ACTIVE"}),
        Tick(2.0, 1.0, fabric={PORT.key: {"tx_bytes_per_second": 500.0}}, port_states={PORT.key: "ACTIVE"}),
        Tick(3.0, 1.0, port_states={PORT.key: "DOWN"}),
    )
    text = page(totals)
    names = "tx_bytes", "rx_observed_seconds", "active_seconds", "state_observed_seconds", "silent_seconds"
    sums = values(text, *(f"fabric_{name}_total" for name in (*names, "util_observed_seconds")))
    assert sums == [500.5, 1.0, 2.0, 3.0, 1.0, 1.0]
    assert value(text, "skuwise_fabric_port_info", role="compute", port="1", device="mlx5_0") == 1.0


def test_absences_and_work_are_counted_between_their_changes() -> None:
    absence = Absence("gpu", GPU.uuid, "sm_active", "no-gpm", "detail", "remedy")
    work = Workload("w1", "s1", "secret-name", "slurm", job_id="42", user="alice", command="python --token x")
    totals = totals_of(tick(1, {}))
    totals.set_absences([absence])
    totals.set_uses([work], [WorkloadUse("w1", GPU.uuid, "process"), WorkloadUse("unknown", GPU.uuid, "process")])
    totals.add_tick(tick(2, {}, 2.0))
    text = page(totals)
    assert value(text, "skuwise_absence", reason="no-gpm", metric="sm_active", subject=GPU.uuid) == 1.0
    assert value(text, "skuwise_absence_seconds_total", reason="no-gpm") == 2.0
    assert value(text, "skuwise_workload_gpu_seconds_total", workload_id="w1", job_id="42", basis="process") == 2.0
    totals.set_absences([])
    totals.set_uses([], [])
    totals.add_tick(tick(3, {}))
    text = page(totals)
    assert value(text, "skuwise_absence", reason="no-gpm") is None
    assert value(text, "skuwise_absence_seconds_total", reason="no-gpm") == 2.0
    assert value(text, "skuwise_workload_gpu_seconds_total", workload_id="w1") == 2.0
    totals.set_absences([absence])
    totals.add_tick(tick(4, {}, 0.5))
    assert value(page(totals), "skuwise_absence_seconds_total", reason="no-gpm") == 2.5
    for secret in ("alice", "secret-name", "token", "python"):
        assert secret not in text


HOSTILE = 'evil"} 1\nfake_metric 1\n\\ \x1b[31m \udc80 ' + "x" * 4096


def hostile() -> Totals:
    gpu = replace(GPU, uuid="GPU-a", name=HOSTILE, sku=HOSTILE, driver_version=HOSTILE)
    port = replace(PORT, device=HOSTILE)
    totals = totals_of(survey=Probe((gpu,), (port,), ()), node=Node(HOSTILE, HOSTILE, region=HOSTILE))
    totals.set_absences([Absence("fabric", HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)])
    totals.set_uses(
        [Workload("w", "s", HOSTILE, "kubernetes", HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)],
        [WorkloadUse("w", "GPU-a", "process")],
    )
    gpus, fabric = {"GPU-a": {"sm_active": 0.5, "tensor_active": 0.1}}, {port.key: {"tx_bytes_per_second": 1.0}}
    totals.add_tick(Tick(1.0, 1.0, gpus=gpus, fabric=fabric))
    return totals


def test_hostile_names_stay_inside_their_labels() -> None:
    for write in (generate_latest, openmetrics):
        text = write(make_page(hostile(), {})).decode()  # type: ignore[arg-type] - it only collects
        series = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\\n]|\\[\\"n])*",?)*\})? \S+')
        odd = [line for line in text.splitlines() if not line.startswith("#") and not series.fullmatch(line)]
        assert odd == []
        assert "\x1b" not in text and max(map(len, text.splitlines())) < 3000


def test_xids_are_counted_by_number_and_the_first_one_is_an_increase() -> None:
    totals = totals_of(tick(1, {"sm_active": 0.5}))
    before = page(totals)
    assert value(before, "skuwise_gpu_events_total", gpu_uuid="GPU-a", event="xid") == 0
    assert value(before, "skuwise_gpu_xid_events_total") is None
    events = Event(1.0, "GPU-a", "xid", 79, count=3), Event(1.0, None, "ecc-single-bit")
    totals.add_tick(Tick(1.7e9 + 2, 1.0, events=events))
    after = page(totals)
    assert value(after, "skuwise_gpu_xid_events_total", gpu_uuid="GPU-a", xid="79") == 3
    assert value(after, "skuwise_gpu_events_total", gpu_uuid="GPU-a", event="xid") == 3
    assert value(after, "skuwise_gpu_events_total", event="ecc-single-bit") == 1
