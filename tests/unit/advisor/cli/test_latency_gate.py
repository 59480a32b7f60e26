"""The whole way: what a chat service's engine measured, and what `advise` then says of a slower clock for it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from math import inf
from pathlib import Path
from typing import Any

import pytest
from skuwise.__main__ import main
from skuwise.advisor.demo import simulate
from skuwise.agent.statistics.latency_bins import encode, spread
from skuwise.tests.support.schemas import validate

NOW = 1_790_000_000.0 // 3600 * 3600
HOURS = 78
Shares = dict[float, float]
# Of a thousand requests an hour and their tokens: shares up to each edge in seconds.
FIRST: Shares = {0.04: 0.5, 0.06: 0.95, 0.5: 1.0}
ROOMY: Shares = {0.01: 0.5, 0.02: 0.99, 0.1: 1.0}
TIGHT: Shares = {0.025: 0.5, 0.04: 0.85, 0.05: 0.9005, 0.1: 1.0}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One node of the founding case, whose engine nobody scrapes."""
    folder = tmp_path_factory.mktemp("chat")
    simulate("founding", folder / "nodes", days=HOURS / 24, seed=0, until=NOW, nodes=("serve-01",))
    (made,) = (folder / "nodes").glob("*.db")
    return made


def scraped(plain: Path, folder: Path, first: Shares | None, token: Shares | None) -> Path:
    """The same database with what its engine's histograms counted, hour by hour."""
    path = folder / "node.db"
    shutil.copy(plain, path)

    def bins(shares: Shares | None, count: float) -> str | None:
        if shares is None:
            return None
        counts = spread({**{edge: count * share for edge, share in shares.items()}, 20.0: count, inf: count})
        return encode(counts) if counts is not None else None

    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO server (id, node_id, engine, endpoint) VALUES (1, 1, 'vllm', 'http://x/metrics')")
        held = db.execute("SELECT DISTINCT workload_ref, gpu_uuid FROM workload_use").fetchone()[0]
        db.executemany(
            "INSERT INTO serving_hour (server_id, workload_ref, ts, interval_ms, first_token_bins, output_token_bins)"
            " VALUES (1, ?, ?, 3600000, ?, ?)",
            [(held, NOW - 3600 * n, bins(first, 1000.0), bins(token, 40_000.0)) for n in range(HOURS - 1)],
        )
    return path


def advised(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main(["advise", "--db", str(path), "--since", f"{HOURS}h", "--format", "json", *more]) == 0
    told = json.loads(capsys.readouterr().out)
    validate(told, "advice")
    return told


def slower(told: dict[str, Any]) -> dict[str, Any]:
    (way,) = [r for r in told["recommendations"] if r["action"] in ("lower-clock", "power-cap")]
    return way


def test_a_clock_that_would_break_50_ms_a_token_is_blocked(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scraped(plain, tmp_path, FIRST, TIGHT)
    told = advised(path, capsys)
    way = slower(told)
    work = next(w for w in told["workloads"] if w["id"] == way["workload"])
    assert (work["latency"]["class"], work["latency"]["basis"]) == ("interactive", "measured")
    assert work["latency"]["output_token"]["p90"] == pytest.approx(0.0499, abs=2e-4)
    (why,) = way["blocked_by"]
    assert why["code"] == "latency-class-broken"
    assert why["fields"]["measure"] == "output_token"
    assert why["fields"]["predicted_seconds"] > why["fields"]["limit_seconds"] == 0.05
    assert main(["explain", "--db", str(path), "--since", f"{HOURS}h", work["id"]]) == 0
    shown = capsys.readouterr().out
    assert "Latency class: interactive, measured from its engine" in " ".join(shown.split())
    assert main(["advise", "--db", str(path), "--since", f"{HOURS}h", "--all", "--verbose"]) == 0
    assert "latency class interactive" in " ".join(capsys.readouterr().out.split())


def test_a_sites_word_makes_it_a_batch_or_holds_it_to_a_limit_of_its_own(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, rules = scraped(plain, tmp_path, FIRST, TIGHT), tmp_path / "rules"
    rules.mkdir()
    name = advised(path, capsys)["workloads"][0]["name"]
    own = f"match: {{name: [{json.dumps(name)}]}}, reason: nobody waits"
    (rules / "latency_classes.yaml").write_text(f"services:\n  nightly: {{class: batch, {own}}}\n")
    told = advised(path, capsys, "--rules", str(rules))
    assert told["workloads"][0]["latency"]["class"] == "batch"
    assert slower(told)["blocked_by"] == []
    (rules / "latency_classes.yaml").write_text(
        "classes:\n  quick: {first_token_p90_seconds: 0.05, reason: speech}\n"
        f"services:\n  speech: {{class: quick, {own}}}\n"
    )
    (why,) = slower(advised(path, capsys, "--rules", str(rules)))["blocked_by"]
    assert (why["fields"]["class"], why["fields"]["limit_seconds"]) == ("quick", 0.05)
    assert main(["rules", "check", str(rules)]) == 0
    assert main(["rules", "list", "--rules", str(rules)]) == 0
    assert "services speech: quick, nobody waits" in capsys.readouterr().out
