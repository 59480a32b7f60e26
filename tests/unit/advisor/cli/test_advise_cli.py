"""`skuwise advise` as people run it, on simulated databases."""

import sqlite3
from math import inf
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.demo import simulate
from skuwise.agent.statistics.latency_bins import encode, spread
from skuwise.tests.support.schemas import advised


def test_the_founding_case_is_found_priced_and_compared(founding, capsys):
    advice = advised(capsys, "--db", str(founding))
    found = [f for f in advice["findings"] if f["rule"] == "idle-fabric"]
    assert len(found) == 1 and found[0]["cost_usd"] > 0
    assert found[0]["price"] in {p["id"] for p in advice["prices"]}
    actions = {r["action"] for r in advice["recommendations"] if found[0]["id"] in r["findings"]}
    assert actions == {"move-sku", "reduce-gpus", "swap-placement"}
    assert {w["bottleneck"]["label"] for w in advice["workloads"]} == {"hbm-bandwidth"}
    parts = dict(advice["summary"]["reconciliation"])
    total = parts.pop("total")
    assert sum(parts.values()) == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("form", ["table", "csv"])
def test_data_goes_to_stdout_and_progress_to_stderr(founding, form, capsys):
    assert main(["advise", "--db", str(founding), "--format", form]) == 0
    said = capsys.readouterr()
    assert "idle-fabric" in said.out and "reading telemetry" in said.err and "reading telemetry" not in said.out


def test_output_is_written_whole_or_not_at_all(founding, tmp_path, capsys):
    target = tmp_path / "report.md"
    target.write_text("old")
    assert main(["advise", "--db", str(founding), "--format", "markdown", "--output", str(target)]) == 0
    assert target.read_text().startswith("# GPU fleet: ")
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]
    assert capsys.readouterr().out == ""
    assert main(["advise", "--db", str(founding), "--output", str(tmp_path / "none" / "x.txt")]) == 1
    assert "Cannot write" in capsys.readouterr().err


def test_own_prices_come_first(founding, tmp_path, capsys):
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "prices:\n  - sku: azure/Standard_ND96isr_H100_v5\n    region: eastus\n    usd_per_hour: 40.0\n"
        "    basis: owned\n    source: books\n    as_of: 2026-10-01\n"
    )
    advice = advised(capsys, "--db", str(founding), "--prices", str(prices))
    assert any(p["basis"] == "owned" and p["usd_per_hour"] == 40.0 for p in advice["prices"])
    assert advice["summary"]["recoverable_usd_per_month"] == 0


def test_a_short_window_gives_no_waste_and_says_from_when(founding, capsys):
    advice = advised(capsys, "--db", str(founding), "--since", "6h")
    assert advice["findings"] == [] and any("verdict" in note["text"] for note in advice["notes"])


def test_bad_databases_are_told_in_one_sentence(tmp_path, capsys):
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE t (a)")
    (tmp_path / "text.db").write_text("no database at all, but long enough to look like a file of some kind")
    for path in (foreign, tmp_path / "text.db", tmp_path / "missing.db"):
        assert main(["advise", "--db", str(path)]) in (1, 2, 3)
        said = capsys.readouterr().err
        assert "Traceback" not in said and "unexpected" not in said


def test_prices_that_cannot_be_right_are_refused_with_their_line_before_anything_is_read(tmp_path, capsys):
    path = tmp_path / "prices.yaml"
    path.write_text("prices:\n  - {sku: azure/x, usd_per_hour: 0}\n")
    assert main(["advise", "--db", str(tmp_path / "unread.db"), "--prices", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("skuwise: ") and "prices.yaml:2: " in said.err


NOW = 1_790_000_000.0 // 3600 * 3600
HOURS = 78
# Of a thousand requests an hour and their tokens: shares up to each edge in seconds.
FIRST = {0.04: 0.5, 0.06: 0.95, 0.5: 1.0}
TIGHT = {0.025: 0.5, 0.04: 0.85, 0.05: 0.9005, 0.1: 1.0}


@pytest.fixture
def scraped(tmp_path: Path) -> Path:
    """One node of the founding case, with what its engine's histograms counted, hour by hour."""
    simulate("founding", tmp_path / "nodes", days=HOURS / 24, seed=0, until=NOW, nodes=("serve-01",))
    (path,) = (tmp_path / "nodes").glob("*.db")

    def bins(shares: dict[float, float], count: float) -> str:
        counts = spread({**{edge: count * share for edge, share in shares.items()}, 20.0: count, inf: count})
        assert counts is not None
        return encode(counts)

    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO server (id, node_id, engine, endpoint) VALUES (1, 1, 'vllm', 'http://x/metrics')")
        held = db.execute("SELECT DISTINCT workload_ref, gpu_uuid FROM workload_use").fetchone()[0]
        db.executemany(
            "INSERT INTO serving_hour (server_id, workload_ref, ts, interval_ms, first_token_bins, output_token_bins)"
            " VALUES (1, ?, ?, 3600000, ?, ?)",
            [(held, NOW - 3600 * n, bins(FIRST, 1000.0), bins(TIGHT, 40_000.0)) for n in range(HOURS - 1)],
        )
    return path


def test_a_clock_that_would_break_50_ms_a_token_is_blocked(scraped: Path, capsys) -> None:
    told = advised(capsys, "--db", str(scraped), "--since", f"{HOURS}h")
    (way,) = [r for r in told["recommendations"] if r["action"] in ("lower-clock", "power-cap")]
    work = next(w for w in told["workloads"] if w["id"] == way["workload"])
    assert (work["latency"]["class"], work["latency"]["basis"]) == ("interactive", "measured")
    assert work["latency"]["output_token"]["p90"] == pytest.approx(0.0499, abs=2e-4)
    (why,) = way["blocked_by"]
    assert why["code"] == "latency-class-broken" and why["fields"]["measure"] == "output_token"
    assert why["fields"]["predicted_seconds"] > why["fields"]["limit_seconds"] == 0.05
    assert main(["explain", "--db", str(scraped), "--since", f"{HOURS}h", work["id"]]) == 0
    shown = capsys.readouterr().out
    assert "Latency class: interactive, measured from its engine" in " ".join(shown.split())
    assert main(["advise", "--db", str(scraped), "--since", f"{HOURS}h", "--all", "--verbose"]) == 0
    assert "latency class interactive" in " ".join(capsys.readouterr().out.split())


def test_rules_list_names_the_services_of_a_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "latency_classes.yaml").write_text(
        "classes:\n  quick: {first_token_p90_seconds: 0.05, reason: speech}\n"
        "services:\n  speech: {class: quick, match: {name: [x]}, reason: nobody waits}\n"
    )
    assert main(["rules", "list", "--rules", str(tmp_path)]) == 0
    assert "services speech: quick, nobody waits" in capsys.readouterr().out
