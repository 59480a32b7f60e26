"""The dcgm source on pages of old and new exporters, with their blanks, copies and faults."""

import pytest
from skuwise.agent.model import Absence, Instant, Reading
from skuwise.agent.sampler import Sampler
from skuwise.agent.sources.base import UnreadGpu
from skuwise.agent.sources.dcgm import DcgmSource
from skuwise.tests.support.metrics_fixtures import NEW_DCGM, OLD_DCGM, PagesAtHand, dcgm_page
from skuwise.tests.unit.agent.test_sampler import Steady

URL = "http://127.0.0.1:9400/metrics"
GPU, OTHER = "GPU-aaaa", "GPU-bbbb"
# Field of the page, our metric, and what the page says, which is in our unit already.
FIELDS = (
    ("SM_ACTIVE", "sm_active", 0.5),
    ("SM_OCCUPANCY", "sm_occupancy", 0.25),
    ("PIPE_TENSOR_ACTIVE", "tensor_active", 0.4),
    ("DRAM_ACTIVE", "dram_active", 0.3),
    ("PIPE_FP64_ACTIVE", "fp64_active", 0),
    ("PIPE_FP32_ACTIVE", "fp32_active", 0.1),
    ("PIPE_FP16_ACTIVE", "fp16_active", 0.02),
    ("PCIE_TX_BYTES", "pcie_tx_bytes_per_second", 1500000000),
    ("PCIE_RX_BYTES", "pcie_rx_bytes_per_second", 2500000000),
    ("NVLINK_TX_BYTES", "nvlink_tx_bytes_per_second", 90000000000),
    ("NVLINK_RX_BYTES", "nvlink_rx_bytes_per_second", 80000000000),
)
RATIOS = {f"DCGM_FI_PROF_{field}": value for field, _, value in FIELDS[:7]} | {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.9}
BYTES = {f"DCGM_FI_PROF_{field}": value for field, _, value in FIELDS[7:]}
TRUTH = {metric: value for _, metric, value in FIELDS}


def at(seconds: float) -> Instant:
    return Instant(1_790_000_000.0 + seconds, seconds)


def source_on(page: str, *lacking: UnreadGpu) -> tuple[DcgmSource, PagesAtHand]:
    pages = PagesAtHand()
    source = DcgmSource(lambda: lacking or (UnreadGpu(GPU, GPU),), pages, URL, 30.0)
    source.read(at(0))
    pages.put(URL, page, 1)
    return source, pages


def reasons(reading: Reading, uuid: str = GPU) -> dict[str, str]:
    return {a.metric: a.reason for a in reading.absences if a.subject == uuid}


RENAMED = {
    name.replace("PIPE_", "").replace("_ACTIVE", "_UTIL_RATIO").replace("OCCUPANCY", "OCCUPANCY_RATIO"): value
    for name, value in RATIOS.items()
}


@pytest.mark.parametrize(("ratios", "labels"), [(RATIOS, OLD_DCGM), (RENAMED, NEW_DCGM), (RENAMED | RATIOS, NEW_DCGM)])
def test_pages_of_older_and_newer_exporters_are_read_in_base_units(ratios: dict[str, float], labels: str) -> None:
    source, _ = source_on(dcgm_page(ratios | BYTES, GPU, labels))
    reading = source.read(at(1))
    assert reading.gpus == {GPU: TRUTH}
    assert reading.absences == frozenset()


SM = "DCGM_FI_PROF_SM_ACTIVE"


def pods(*values: float) -> str:
    """A page that repeats a GPU for each pod on it."""
    return "".join(dcgm_page(RATIOS | {SM: value}, GPU, NEW_DCGM, pod=f"p{value}") for value in values)


def busy(share: int) -> str:
    """A page whose profiling says 0 while kernels ran for that share of time, in percent."""
    return dcgm_page(dict.fromkeys(RATIOS, 0) | {"DCGM_FI_DEV_GPU_UTIL": share}, GPU)


@pytest.mark.parametrize(
    ("page", "value", "reason"),
    [
        *(
            (dcgm_page(RATIOS | {SM: value}, GPU), None, reason)
            for value, reason in (
                ("9223372036854775792", "dcgm-blank"),
                ("9223372036854775794", "not-supported"),
                ("9223372036854775795", "no-permission"),
                ("1.40737488355330e+14", "not-supported"),
                ("2147483632", "dcgm-blank"),
                ("NaN", "not-a-number"),
                ("-1", "out-of-range"),
                ("1.73", "out-of-range"),  # SM_ACTIVE on MIG, NVIDIA/DCGM#152
                ("4294967295", "out-of-range"),
            )
        ),
        (dcgm_page(RATIOS | {SM: 1.0004}, GPU), 1.0, None),
        (pods(0.5, 0.5), 0.5, None),
        (pods(0.5, 0.7), None, "ambiguous"),
        (busy(100), None, "profiling-stuck"),
        (busy(0), 0.0, None),
    ],
)
def test_what_a_page_says_is_a_value_or_missing_with_its_reason(
    page: str, value: float | None, reason: str | None
) -> None:
    reading = source_on(page)[0].read(at(1))
    assert (reading.gpus.get(GPU, {}).get("sm_active"), reasons(reading).get("sm_active")) == (value, reason)
    assert reason == "profiling-stuck" or "tensor_active" in reading.gpus[GPU]


def test_what_other_fields_tell_is_never_taken_and_doctor_says_which_line_switches_one_on() -> None:
    # NVLINK_BANDWIDTH_TOTAL adds up both directions; the others are impossible (dcgm-exporter#418, #312).
    others = {"NVLINK_BANDWIDTH_TOTAL": 87900, "GPU_UTIL": 905, "GPU_TEMP": 82505, "POWER_USAGE": 644245923}
    zeros = dict.fromkeys(RATIOS, 0)
    source, _ = source_on(dcgm_page(zeros | {f"DCGM_FI_DEV_{name}": value for name, value in others.items()}, GPU))
    reading = source.read(at(1))
    assert reading.gpus == {GPU: {metric: 0.0 for _, metric, _ in FIELDS[:7]}}
    # The driver's own counters may tell traffic: what the page lacks of it is for doctor alone.
    assert reading.absences == frozenset()
    lines = {c.metric: c for c in source.probe().capabilities}
    assert {metric for metric, line in lines.items() if line.absence} == {metric for _, metric, _ in FIELDS[7:]}
    absence = lines["nvlink_tx_bytes_per_second"].absence
    assert absence is not None and absence.reason == "not-exported"
    assert "DCGM_FI_PROF_NVLINK_TX_BYTES, gauge, " in absence.remedy
    assert lines["tensor_active"].origin == "dcgm-exporter DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, every 30 s"


def test_a_mig_instances_values_are_its_own_and_never_its_parents() -> None:
    mig = ',GPU_I_PROFILE="3g.40gb",GPU_I_ID="2"'
    page = dcgm_page({"DCGM_FI_PROF_SM_ACTIVE": 0.9}, GPU, OLD_DCGM + mig)
    page += dcgm_page({"DCGM_FI_PROF_SM_ACTIVE": 0.4}, GPU, OLD_DCGM)
    page += dcgm_page({"DCGM_FI_PROF_SM_ACTIVE": 0.1}, GPU, OLD_DCGM + mig.replace('"2"', '"3"'))
    source, _ = source_on(page, UnreadGpu(GPU, GPU), UnreadGpu("MIG-1", GPU, "2"), UnreadGpu("MIG-2", GPU, "5"))
    reading = source.read(at(1))
    assert reading.gpus == {GPU: {"sm_active": 0.4}, "MIG-1": {"sm_active": 0.9}}
    assert reasons(reading, "MIG-2")["sm_active"] == "gpu-not-on-page"


def test_an_exporter_that_cannot_be_reached_is_one_line_with_a_remedy() -> None:
    pages = PagesAtHand()
    source = DcgmSource(lambda: (UnreadGpu(GPU, GPU),), pages, URL, 30.0)
    assert [c.absence.reason for c in source.probe().capabilities if c.absence] == ["not-read-yet"]
    source.read(at(0))
    pages.fail(URL, "unreachable", 1)
    (line,) = source.probe().capabilities
    assert line.absence in source.read(at(1)).absences and line.absence.reason == "unreachable"
    assert pages.waited == 1  # only the first probe may wait: a later one runs between two ticks
    pages.put(URL, dcgm_page(RATIOS | BYTES, GPU), 31)
    assert source.read(at(31)).absences == frozenset()


def test_gpm_wins_and_a_page_is_given_once_and_not_absent_until_the_next() -> None:
    no_gpm, other = (Absence("gpu", uuid, "sm_active", "no-gpm") for uuid in (GPU, OTHER))
    gpm = Steady("gpm", Reading(gpus={GPU: {"dram_active": 0.77}}, absences=frozenset({no_gpm, other})))
    source, pages = source_on(dcgm_page(RATIOS | BYTES, GPU))
    sampler = Sampler((gpm, source), 1.0, 10.0)
    first, second = sampler.sample(at(1)), sampler.sample(at(2))
    assert (first.tick.gpus[GPU]["dram_active"], first.tick.gpus[GPU]["sm_active"]) == (0.77, 0.5)
    assert second.tick.gpus == {GPU: {"dram_active": 0.77}}
    assert first.absences == second.absences == frozenset({other})
    assert no_gpm in sampler.sample(at(300)).absences
    pages.put(URL, dcgm_page(RATIOS, GPU), 301)
    assert sampler.sample(at(301)).tick.gpus[GPU]["sm_active"] == 0.5
