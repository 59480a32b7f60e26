"""Fleets as a server has them that scrapes once a minute, and the views of them that the kinds' model learns from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.benchmarks.fit import kind_examples
from skuwise.benchmarks.fit.kind_examples import VIEWS, Fleet, examples_of, varied_fleets
from skuwise.benchmarks.generators.first import simulate

UNTIL = 1_790_000_000.0
END = UNTIL - UNTIL % 3600
HOURS = 12


def made(folder: Path, scenario: str, *, scraped: bool) -> Frame:
    path = folder / f"{scenario}-{scraped}.db"
    simulate(scenario, path, days=HOURS / 24, seed=5, until=UNTIL, minutes_seconds=0, scraped=scraped)
    return read_frame([path], Window(END - HOURS * 3600, END))


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Frame:
    return made(tmp_path_factory.mktemp("scraped"), "mig", scraped=True)


def test_an_hour_holds_sixty_scrapes_and_nothing_that_takes_seconds_in_a_row(scraped: Frame) -> None:
    gpu = scraped.gpu
    counts = gpu["dram_active_n"]
    assert counts.max() == 60
    assert np.allclose(gpu["observed_seconds"][counts > 0], 60 * counts[counts > 0])
    fine = (
        "period_seconds",
        "period_strength",
        "duty",
        "idle_run_seconds",
        "sm_active_cv",
        "tensor_nvlink_correlation",
    )
    assert gpu[[name for name in fine if name in gpu]].isna().all(axis=None)


def test_an_instance_tells_how_busy_its_engine_is_where_an_exporter_reads_it(scraped: Frame) -> None:
    instances = set(scraped.gpus.loc[scraped.gpus["kind"] == "mig", "gpu_uuid"])
    mine = scraped.gpu["gpu_uuid"].isin(instances)
    assert scraped.gpu.loc[mine, "gpu_util_mean"].notna().all()
    assert scraped.gpu.loc[~mine, "gpu_util_mean"].isna().all()


def test_scrapes_and_seconds_tell_the_same_levels(tmp_path: Path) -> None:
    coarse, fine = (made(tmp_path, "single-gpu", scraped=scraped).gpu for scraped in (True, False))
    for name in ("gpu_util_mean", "tensor_active_mean", "power_watts_mean", "mem_used_bytes_mean"):
        assert coarse[name].mean() == pytest.approx(fine[name].mean(), rel=0.08), name
    told = coarse[["tensor_active_max", "tensor_active_p95"]].dropna()
    assert (told["tensor_active_max"] >= told["tensor_active_p95"] - 1e-6).all()


def test_the_exporter_s_view_lacks_on_some_nodes_what_is_off_by_default(scraped: Frame) -> None:
    seen = VIEWS["60 s"].seen(scraped)
    by_node = seen.gpu.groupby("node")["sm_active_mean"].count() > 0
    plain = {node for node in by_node.index if kind_examples._coin(str(node))}
    assert not by_node[by_node.index.isin(plain)].any()
    assert set(seen.host["node"]).isdisjoint(plain)
    assert seen.gpu["mem_used_bytes_mean"].notna().all()
    assert len(seen.gpu) == len(scraped.gpu)


def test_the_barest_view_holds_use_and_memory_and_no_start_before_the_window(scraped: Frame) -> None:
    seen = VIEWS["60 s, use and memory"].seen(scraped)
    for name in ("tensor_active_mean", "power_watts_mean", "pcie_rx_bytes_per_second_mean", "sm_clock_hertz_mean"):
        assert seen.gpu[name].isna().all(), name
    assert seen.gpu["gpu_util_mean"].notna().any()
    assert seen.host.empty
    assert seen.uses["ts_start"].min() >= seen.window.start
    assert scraped.uses["ts_start"].min() < scraped.window.start


def test_a_fleet_gives_examples_of_every_view_with_life_and_part() -> None:
    days = 0.6
    examples = examples_of(Fleet("varied", 901, days, ((24 * days, 0.0), (14.0, 2.0)), ends_hours_before=31.0))
    assert {one.view for one in examples} == set(VIEWS)
    assert all(one.life is not None and one.life > 0 and one.part for one in examples)
    saved = [one.features.get("resolution_seconds") for one in examples if one.view == "60 s"]
    assert {value for value in saved if value is not None} == {60.0}


def test_fleets_of_the_varied_scenario_end_at_any_hour_of_any_day() -> None:
    fleets = varied_fleets(30)
    assert len({fleet.ends_hours_before // 24 for fleet in fleets}) == 7
    assert {fleet.days for fleet in fleets} >= {0.6, 7}
    for fleet in fleets:
        assert all(24 * fleet.days >= begin > end >= 0 and begin - end >= 11 for begin, end in fleet.windows)
