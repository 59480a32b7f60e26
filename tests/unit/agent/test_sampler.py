"""The loop, bursts, and histograms of latency in fixed bins."""

import random
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.base.clock import Signals, SystemClock
from skuwise.agent.model import AgentStats, Instant, Probe, Reading, Tick
from skuwise.agent.sampler import Sampler, run_loop
from skuwise.agent.sources.base import NOTHING_READ
from skuwise.agent.statistics.burst_stats import Burst, BurstReading, burst_of
from skuwise.agent.statistics.latency_bins import LATENCY_EDGES, added, decode, encode, percentile, spread


@dataclass
class Steady:
    """A source that always reads the same, and notes in `order` what it is asked; `broken`: it raises at all."""

    name: str
    reading: Reading = NOTHING_READ
    order: list[str] = field(default_factory=list)
    broken: bool = False

    def probe(self) -> Probe:
        self.asked("probe")
        return Probe()

    def read(self, instant: Instant) -> Reading:
        self.asked("read")
        return self.reading

    def close(self) -> None:
        self.asked("close")

    def asked(self, what: str) -> None:
        self.order.append(f"{what} {self.name}")
        if self.broken:
            raise OSError("the device went away")


class Slow(Steady):
    """Begins before the others and is read after them."""

    def begin(self, instant: Instant) -> None:
        self.asked("begin")


class SteppedClock(SystemClock):
    """Moves only when it is waited on. It loses time during the given waits (`stalls`, as a slow tick would), or its
    wall time is set in them (`steps`)."""

    def __init__(self, stalls: Mapping[int, float] | None = None, steps: Mapping[int, float] | None = None) -> None:
        super().__init__()
        self.stalls, self.steps = stalls or {}, steps or {}
        self.waits, self.wall_seconds, self.monotonic_seconds = 0, 1_790_000_000.0, 0.0

    def now(self) -> Instant:
        return Instant(self.wall_seconds, self.monotonic_seconds)

    def wait_until(self, monotonic_seconds: float) -> None:
        self.waits += 1
        passed = max(0.0, monotonic_seconds - self.monotonic_seconds) + self.stalls.get(self.waits, 0.0)
        self.monotonic_seconds += passed
        self.wall_seconds += passed + self.steps.get(self.waits, 0.0)


def loop(
    sampler: Sampler, clock: SteppedClock, duration: float, steps: list[tuple[float, float]] | None = None
) -> tuple[list[Tick], list[AgentStats]]:
    """What a loop kept and reported; into `steps` goes what it heard of the wall clock."""
    kept, stats, heard = list[Tick](), list[AgentStats](), [] if steps is None else steps
    options = {"stepped": lambda *step: heard.append(step), "duration_seconds": duration}
    run_loop(sampler, clock, kept.append, stats.append, **options)
    return kept, stats


def test_a_broken_source_is_an_absence_and_the_others_go_on() -> None:
    good = Steady("host", Reading(host={"cpu_util": 0.5}))
    sampler = Sampler([Steady("broken", broken=True), good], 1.0, 10.0)
    survey = sampler.probe()
    assert [c.absence.reason for c in survey.capabilities if c.absence] == ["source-failed"]
    sampled = sampler.sample(Instant(1.0, 1.0))
    assert sampled.host == {"cpu_util": 0.5}
    assert [(a.subject, a.reason) for a in sampled.absences] == [("broken", "source-failed")]
    sampler.close()
    assert good.order == ["probe host", "read host", "close host"]


def test_earlier_sources_win_later_ones_fill_in_and_a_slow_one_is_waited_for_last() -> None:
    order: list[str] = []
    first = Slow("gpm", Reading(gpus={"GPU-1": {"sm_active": 0.5}}), order)
    second = Steady("dcgm", Reading(gpus={"GPU-1": {"sm_active": 0.9, "power_watts": 300.0}}), order)
    tick = Sampler([first, second], 1.0, 10.0).sample(Instant(1.0, 1.0))
    assert tick.gpus == {"GPU-1": {"sm_active": 0.5, "power_watts": 300.0}}
    assert order == ["begin gpm", "read dcgm", "read gpm"]


def test_ticks_stand_on_a_grid_and_a_stall_is_counted_not_made_up() -> None:
    kept, stats = loop(Sampler([Steady("host")], 1.0, 10.0), SteppedClock({3: 2.5}), 8.0)
    assert [round(s.ts - 1_790_000_000.0, 3) for s in kept] == [1.0, 2.0, 5.5, 6.0, 7.0, 8.0]
    assert [round(s.interval_seconds, 3) for s in kept] == [1.0, 1.0, 3.5, 0.5, 1.0, 1.0]
    assert stats[-1].missed_ticks == 2
    assert round(stats[-1].late_seconds, 3) == 2.5


def test_a_wall_clock_that_is_set_is_told_and_the_intervals_stay_true() -> None:
    steps: list[tuple[float, float]] = []
    clock = SteppedClock(steps={3: -3600.0, 6: 0.2, 8: 3600.0})
    kept, stats = loop(Sampler([Steady("host")], 1.0, 10.0), clock, 10.0, steps)
    assert [(round(step, 6), round(ts - 1_790_000_000.0, 6)) for step, ts in steps] == [
        (-3600.0, -3597.0), (3600.0, 8.2),  # 0.2 s between two ticks is slewing
    ]  # fmt: skip
    assert {round(sampled.interval_seconds, 6) for sampled in kept} == {1.0}
    assert round(stats[-1].clock_offset_seconds or 0.0, 6) == 0.2


def test_a_signal_ends_every_wait_whichever_thread_takes_it() -> None:
    signals = Signals(SystemClock())
    taker = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
    taker.start()
    assert signals.wait(600.0) and signals.wait(600.0) and not signals.reload
    signals.close()
    taker.join()
    assert signal.getsignal(signal.SIGTERM) != signals._note


def readings(
    step_seconds: float, seconds: float = 10.0, spacing: float = 0.104, jitter: float = 0.0, seed: int = 7
) -> list[BurstReading]:
    """Compute for 60 % of a step, NVLink in the rest, the fabric with the compute; each reading a mean of 20 points."""
    rng = random.Random(seed)
    made, start = [], 100.0
    while start < 100.0 + seconds:
        end = start + spacing + rng.uniform(0.0, jitter)
        points = [start + (end - start) * (i + 0.5) / 20 for i in range(20)]
        busy = sum(0.9 if (t / step_seconds) % 1.0 < 0.6 else 0.02 for t in points) / 20
        values = {"sm_active": busy, "tensor_active": busy * 0.7, "dram_active": 0.4}
        values |= {"nvlink_rx_bytes_per_second": 1e9 * (1 - busy), "nvlink_tx_bytes_per_second": 2e9 * (1 - busy)}
        made.append(BurstReading(end, end - start, values, 5e9 * busy))
        start = end
    return made


@pytest.mark.parametrize("step_seconds", [0.35, 0.5, 0.8, 0.89, 1.7, 3.1])
@pytest.mark.parametrize("jitter", [0.0, 0.02])
def test_the_step_time_is_found(step_seconds: float, jitter: float, seed_of: Callable[[int], int]) -> None:
    burst = burst_of("GPU-1", 1.8e9, readings(step_seconds, jitter=jitter, seed=seed_of(7)))
    assert burst is not None and burst.period_seconds is not None and burst.period_strength is not None
    assert burst.period_seconds == pytest.approx(step_seconds, rel=0.04)
    assert burst.period_strength > 0.5
    assert burst.tensor_nvlink_correlation == pytest.approx(-1.0, abs=0.01)
    assert burst.tensor_fabric_correlation == pytest.approx(1.0, abs=0.01)
    assert burst.seconds == pytest.approx(10.0, abs=0.2)


def test_duty_idle_run_and_dispersion() -> None:
    burst = burst_of("GPU-1", 1.8e9, readings(4.0))
    assert burst is not None
    assert burst.duty == pytest.approx(0.72, abs=0.03)  # 2.4 s of each 4 s, seen from its start for 10 s
    assert burst.idle_run_seconds == pytest.approx(1.6, abs=0.2)
    assert burst.sm_active_cv == pytest.approx(0.75, abs=0.15)


def test_noise_has_no_period_and_what_was_not_read_is_not_told() -> None:
    def burst(values: Callable[[], dict[str, float]]) -> Burst | None:
        return burst_of("GPU-1", 1.8e9, [BurstReading(0.1 * i, 0.1, values()) for i in range(100)])

    rng, seconds = random.Random(3), pytest.approx(10.0)
    noise = burst(lambda: {"sm_active": rng.random(), "tensor_active": rng.random()})
    assert noise is not None and noise.period_seconds is None and noise.tensor_nvlink_correlation is None
    idle = Burst("GPU-1", 1.8e9, seconds, 100, duty=0.0, idle_run_seconds=seconds)  # type: ignore[arg-type]
    assert burst(lambda: {"sm_active": 0.0}) == idle
    assert burst(dict) == Burst("GPU-1", 1.8e9, seconds, 100)  # type: ignore[arg-type]
    assert burst_of("GPU-1", 1.8e9, readings(0.8)[:19]) is None


def test_counts_at_an_edge_of_ours_are_kept_add_up_and_percentiles_lie_within_their_bucket() -> None:
    vllm = {0.05: 10.0, 0.1: 90.0, 0.25: 100.0, 2.5: 100.0, inf: 100.0}
    counts, above = spread(vllm) or (), spread({2.0: 1.0, inf: 10.0}) or (0.0,)
    assert sum(counts[: LATENCY_EDGES.index(0.1) + 1]) == pytest.approx(90.0)
    # Half of the bucket from 50 to 100 ms; what lies above every edge counts as the last of ours.
    percentiles = [percentile(counts, 0.9), percentile(counts, 0.5), percentile(counts, 0.99), percentile(above, 0.9)]
    assert percentiles == pytest.approx([0.1, 0.075, 0.235, LATENCY_EDGES[-1]])
    assert above[-1] == 9.0
    assert sum(added([counts, counts]) or ()) == pytest.approx(200.0) and added([]) is None


@given(st.lists(st.integers(0, 10**6), min_size=len(LATENCY_EDGES) + 1, max_size=len(LATENCY_EDGES) + 1))
def test_what_is_kept_comes_back(counts: list[int]) -> None:
    back = decode(encode(counts))
    assert back == (tuple(map(float, counts)) if any(counts) else None)


@pytest.mark.parametrize("text", ["", "1,two", "nan", "-1,2", "inf", ",".join(["1"] * 40), "1" * 5000, None, 7, b"1,2"])
def test_a_text_that_is_none_of_ours_is_none(text: object) -> None:
    assert decode(text) is None
