"""Trials through the real store and the real commands: a service on the fabric, one replica beside it without, and what
its engines report."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.demo.skus import H100_ETHERNET
from skuwise.advisor.ledger.entries import LedgerEvent
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.ledger.records import EventFigures, Trial
from skuwise.agent.store.file.codec import SERVING_STEPS
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.base.errors import UsageError

BEFORE = 1_794_139_200.0  # 2026-11-08 12:00 UTC
AFTER = BEFORE + 30 * 3600
SAMPLE = 100.0  # seconds
TOLD = ("requests_running", "requests_waiting", "generation_tokens_per_second")


def engines(path: Path, start: float, end: float, slow: float = 1.0, seed: int = 1) -> None:
    """Let the engines of a database report tokens and requests in flight, from a wave of requests along the day: steps
    of 30 ms, and half a millisecond more for each request in them, `slow` times as long."""
    rng, steps = np.random.default_rng(seed), dict(SERVING_STEPS)
    at = np.arange(start + SAMPLE, end + 1, SAMPLE)
    rate = 300 * (1 + 0.6 * np.sin(2 * np.pi * at / 86400)) * np.exp(rng.normal(0, 0.1, len(at)))  # tokens per second
    running = rate * slow * 0.03 / (1 - rate * slow * 0.0005)
    rows = np.column_stack([running, np.zeros(len(at)), rate])
    scaled = np.round(rows * [steps[name] for name in TOLD]).astype(int)
    with sqlite3.connect(path) as db:
        held = db.execute(
            "SELECT DISTINCT w.id, u.node_id FROM workload w JOIN workload_use u ON u.workload_ref = w.id"
        )
        for n, (workload, node) in enumerate(held.fetchall()):
            db.execute(
                "INSERT INTO server (id, node_id, engine, endpoint) VALUES (?, ?, 'vllm', ?)", (n, node, f"p{n}")
            )
            db.executemany(
                f"INSERT INTO serving_sample (server_id, workload_ref, ts, interval_ms, {', '.join(TOLD)})"
                f" VALUES ({n}, {workload}, ?, {SAMPLE * 1000:.0f}, ?, ?, ?)",
                [(float(ts), *map(int, values)) for ts, values in zip(at, scaled, strict=True)],
            )
    db.close()


class Site:
    """A service of two nodes on the fabric, its ledger, and the replica that goes to a node without it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], *, telling: bool) -> None:
        self.fleet, self.ledger, self.telling, self._capsys = folder / "fleet", folder / "ledger.db", telling, capsys
        self.fleet.mkdir()
        simulate("founding", self.fleet / "before.db", days=1.5, seed=5, until=BEFORE)
        if telling:
            engines(self.fleet / "before.db", BEFORE - 36 * 3600, BEFORE)
        self.run("advise", "--db", self.fleet)
        (self.move,) = [r["id"] for r in self.listed() if r["action"] == "move-sku" and not r["blocked"]]

    def run(self, *arguments: object, status: int = 0) -> tuple[str, str]:
        self._capsys.readouterr()
        assert main([str(one) for one in (*arguments, "--ledger", self.ledger)]) == status
        return self._capsys.readouterr()

    def listed(self) -> list[dict]:
        return json.loads(self.run("ledger", "list", "--all", "--format", "json")[0])["recommendations"]

    def trial(self) -> dict:
        return next(r["trial_result"] for r in self.listed() if r["id"] == self.move)

    def begin(self, at: float, replica: str | None = None) -> None:
        """As the command does, at a time of the simulated fleet."""
        begun = LedgerEvent("trial", at, "ann", figures=EventFigures(trial=Trial(replica)))
        Ledger(self.ledger).add(self.move, begun)

    def go_on(self, slow: float) -> None:
        """A window in which the others stay and one node's replicas run without the fabric."""
        (self.fleet / "before.db").unlink()
        for scenario, nodes, factor in (("founding", (), 1.0), ("moved", ("plain-01",), slow)):
            path = self.fleet / f"{scenario}.db"
            simulate(scenario, path, days=1.25, seed=5, until=AFTER, nodes=nodes)
            if self.telling:
                engines(path, BEFORE, AFTER, factor)
        self.run("advise", "--db", self.fleet)


@pytest.mark.slow
@pytest.mark.parametrize(("slow", "verdict"), [(1.3, "worse"), (1.0, "as predicted")])
def test_one_replica_beside_the_rest_for_a_day_ends_with_a_ratio_and_its_interval(
    tmp_path: Path, capsys, slow: float, verdict: str
) -> None:
    site = Site(tmp_path, capsys, telling=True)
    told = site.run("ledger", "trial", site.move, "--by", "ann")[1]
    assert "The comparison rests on tokens per second at the same number of requests in flight." in told
    site.begin(BEFORE + 60)
    site.go_on(slow)
    found = site.trial()
    assert (found["verdict"], found["basis"]) == (verdict, "tokens-at-equal-concurrency")
    assert found["interval"]["p10"] < slow < found["interval"]["p90"]
    assert found["time_ratio"] == pytest.approx(slow, rel=0.03)
    assert 24 <= found["hours"] <= 30
    assert found["energy_ratio"] > 0
    shown = " ".join(site.run("ledger", "show", site.move)[0].split())
    assert f"The trial went {verdict}" in shown
    assert "tried by skuwise on" in shown


@pytest.mark.slow
def test_engines_that_tell_nothing_are_refused_before_the_trial_and_end_it_with_the_reason(
    tmp_path: Path, capsys
) -> None:
    site = Site(tmp_path, capsys, telling=False)
    refused = site.run("ledger", "trial", site.move, status=UsageError.exit_status)[1]
    assert "neither tokens nor requests are counted on both sides" in refused
    assert "serving_endpoints" in refused
    assert site.trial() is None
    site.begin(BEFORE - 6 * 86400)  # by an older version; its week ends in this window
    site.begin(BEFORE + 60)
    site.go_on(1.0)
    waiting = site.trial()
    assert (waiting["verdict"], waiting["code"]) == (None, "trial-split-unknown")
    assert "serving_endpoints" in waiting["reason"]
    assert waiting["hours"] >= 24
    listed = " ".join(site.run("ledger", "list")[0].split())
    assert "proposed, on trial" in listed
    assert "It ends on 2026-11-15 12:01 UTC at the latest." in listed


@pytest.mark.slow
def test_a_named_replica_is_its_pod_and_a_wrong_name_is_told_with_the_right_ones(tmp_path: Path, capsys) -> None:
    site = Site(tmp_path, capsys, telling=True)
    told = site.run("ledger", "trial", site.move, "--replica", "chat-\x1b[31m7")[1]
    assert "\x1b" not in told
    assert "No replica is named chat-" in told
    assert "names: backend-60-" in told
    site.begin(BEFORE + 60, "chat-\x1b[31m7")
    site.go_on(1.0)
    assert site.trial()["code"] == "trial-replica-unknown"
    with sqlite3.connect(site.fleet / "moved.db") as db:
        ((pod,),) = db.execute("SELECT pod FROM workload LIMIT 1").fetchall()
    db.close()
    site.begin(BEFORE + 60, pod)
    site.run("advise", "--db", site.fleet)
    found = site.trial()
    assert (found["verdict"], found["replica"]) == ("as predicted", pod)
    assert H100_ETHERNET in next(r["to"] for r in site.listed() if r["id"] == site.move)
