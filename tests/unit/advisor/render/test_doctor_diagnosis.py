"""From the frame and the advice to what is expected, observed and missing, and how it is shown."""

import json
import sqlite3
import unicodedata
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.__main__ import main
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.demo import simulate
from skuwise.advisor.doctor.json import render_diagnosis_json
from skuwise.advisor.doctor.text import render_diagnosis_text
from skuwise.advisor.doctor.types import Diagnosis, MetricCoverage, TelemetryGap
from skuwise.advisor.render import render
from skuwise.advisor.rulebook import Rulebook
from skuwise.advisor.views.document.page_options import PageOptions
from skuwise.rules.base.sanitize import INVISIBLE
from skuwise.rules.catalog.hour_prices import HourPrices
from skuwise.tests.support.doctor_fleets import ALL_COLUMNS, Fleet, diagnosed, diagnosed_frame
from skuwise.tests.support.partly_observed import advice, dark
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.schemas import validate

BOOK = rulebook()


def measure(found: Diagnosis, name: str) -> MetricCoverage:
    return next(one for one in found.metrics if one.metric == name)


def document(found: Diagnosis) -> dict:
    out = json.loads(render_diagnosis_json(found))
    validate(out, "doctor")
    return out


def test_where_everything_is_there_nothing_is_missing() -> None:
    found = diagnosed(Fleet())
    assert found.gaps == ()
    out = document(found)
    assert out["summary"] | {"unobserved": 0} == {
        "node_count": 1, "gpu_count": 8, "observed_gpu_count": 8, "mig_instances": 0, "unobserved": 0,
    }  # fmt: skip
    assert out["verdicts"]["waste_ready_gpus"] == 8 and out["verdicts"]["hours_until_waste"] == 0
    assert out["nodes"][0]["usd_per_hour"] > 0 and out["nodes"][0]["price_region_assumed"] is None
    text = render_diagnosis_text(found)
    assert "unknown, eastus assumed" in render_diagnosis_text(diagnosed(Fleet(region=None)))
    assert "No gaps found." in text and "judged on 8 of 8 GPUs" in text and "InfiniBand observed" in text


@pytest.fixture(scope="module")
def partly() -> Diagnosis:
    return diagnosed_frame(replace(dark(), source={"kind": "sqlite", "databases": ["a.db"]}), BOOK)


def test_doctor_and_advise_say_the_same(partly: Diagnosis) -> None:
    out, summary = document(partly), advice().summary
    assert out["summary"]["gpu_count"] == summary.gpu_count == 32
    assert out["summary"]["observed_gpu_count"] == 32 - summary.unobserved_gpu_count == 22
    assert out["summary"]["unobserved"] == [
        {"node": u.node, "gpus": list(u.gpus), "reason": u.reason, "code": u.code} for u in summary.unobserved
    ]
    assert out["verdicts"]["waste_ready_gpus"] == summary.judged_gpu_count
    prices = {one.usd_per_hour for one in advice().prices}
    assert {node["usd_per_hour"] for node in out["nodes"]} <= prices
    assert out["verdicts"]["waste_ready_nodes"] == 2
    coverage = PageOptions(sections=("coverage",))
    page = render(advice(), "table", width=200) + render(partly.advice, "table", width=200, page=coverage)
    for sentence in ("32 GPUs, 22 observed, 10 not observed", "Waste judged on 14 of 32 GPUs, 2 of 4 nodes."):
        assert sentence in render_diagnosis_text(partly, width=200) and sentence in page


def spoken(frame: Frame, book: Rulebook = BOOK) -> tuple[Diagnosis, str, str]:
    """What doctor and advise say of a frame."""
    found = diagnosed_frame(frame, book)
    page = render(found.advice, "table", width=200, page=PageOptions(sections=("coverage", "prices")))
    return found, render_diagnosis_text(found, width=200), page


def test_one_function_decides_on_how_many_nodes_a_fabric_was_observed() -> None:
    frame = Fleet().frame()
    for role, said, having in (
        ("compute", "Compute fabric observed on 1 of 1 node with one.", 1),
        ("storage", "Compute fabric observed on 0 of 1 node with one.", 0),
    ):
        found, doctor, advise = spoken(replace(frame, fabric=frame.fabric.assign(role=role)))
        assert said in doctor and said in advise and measure(found, "infiniband").having == having
        assert ("no-infiniband" in {gap.code for gap in found.gaps}) == (having == 0)
        assert found.advice.fabrics[0].unseen is None or found.advice.fabrics[0].unseen in doctor


def test_a_node_that_the_advice_prices_has_the_same_name_in_both() -> None:
    hourly = HourPrices({"H100-SXM5": 2.5}, {}, "2026-11-02")
    found, doctor, advise = spoken(Fleet(sku=None, region=None).frame(), replace(BOOK, hourly=hourly))
    assert found.nodes[0].price is not None and "8 x H100-SXM5" in doctor and "8 x H100-SXM5" in advise


def test_both_say_that_no_gpu_was_observed_for_long_enough() -> None:
    _, doctor, advise = spoken(Fleet(hours=20, window_hours=48).frame())
    assert all("no GPU was observed for the 30 h" in text and "judged on" not in text for text in (doctor, advise))


def test_gaps_name_the_cause_and_the_nodes(partly: Diagnosis) -> None:
    by_code = {(gap.code, gap.nodes): gap for gap in partly.gaps}
    assert by_code["no-driver", ("n2",)].add == "Load it."
    assert by_code["no-driver", ("n2",)].what == "8 GPUs not observed: cannot be read: The NVIDIA driver is not loaded."
    assert ("too-little-data", ("n3",)) in by_code
    assert measure(partly, "power").having == 22 and measure(partly, "power").of == 32
    assert ("no-power", ("n2",)) not in by_code


def test_notes_of_the_reader_are_shown_but_for_those_that_a_gap_says() -> None:
    notes = (CodedText("no-fabric-series", "No fabric metrics."), CodedText("file-left-out", "Ignored: z.db."))
    frame = replace(Fleet(columns=ALL_COLUMNS - {"dram_active"}).frame(), notes=notes)
    assert [note.code for note in diagnosed_frame(frame, BOOK).notes] == ["file-left-out"]


words = st.text(max_size=30)


@given(words, words, st.sampled_from([60, 80, 100, 200]))
def test_whatever_the_source_says_the_table_holds_no_control_and_json_is_valid(
    name: str, said: str, width: int
) -> None:
    hostile = f"\x1b[2J\u202e{name}[red]"
    found = diagnosed(Fleet(sku=None, region=None))
    (node,) = found.nodes
    node = replace(node, facts=replace(node.facts, node=hostile, node_sku=said, region=hostile))
    found = replace(
        found, nodes=(node,), exporters=(hostile,), notes=(CodedText("said", hostile),),
        gaps=(*found.gaps, TelemetryGap("said", hostile, said, said, hostile, (hostile,))),
    )  # fmt: skip
    text = render_diagnosis_text(found, width=width)
    assert "\x1b" not in text and "\u202e" not in text
    assert not any(c != "\n" and unicodedata.category(c) in INVISIBLE for c in text)
    document(found)
    assert render_diagnosis_json(found).isascii()


UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z


@pytest.fixture(scope="module")
def founding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("doctor") / "founding.db"
    simulate("founding", path, days=2, seed=4, until=UNTIL, minutes_seconds=3600, nodes=("serve-01", "serve-02"))
    return path


def changed(path: Path, to: Path, *statements: str) -> Path:
    to.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(to, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return to


def document_databases(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict:
    capsys.readouterr()
    assert main(["doctor", *arguments, "--format", "json"]) == status
    found = json.loads(capsys.readouterr().out)
    validate(found, "doctor")
    return found


def test_a_metric_that_is_nowhere_is_a_gap_and_advise_says_so_in_a_line(
    founding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(founding, tmp_path / "blind.db", *(
        f"UPDATE gpu_{family} SET dram_active_mean = NULL, dram_active_to_p95 = NULL, dram_active_to_max = NULL"
        for family in ("hour", "minute")
    ))  # fmt: skip
    found = document_databases(capsys, "--db", str(path), "--since", "2d")
    assert next(one for one in found["metrics"] if one["metric"] == "dram_active")["having"] == 0
    (gap,) = found["gaps"]
    assert (gap["code"], len(gap["nodes"])) == ("no-dram-active", 2)
    assert main(["advise", "--no-ledger", "--db", str(path), "--since", "2d"]) == 0
    said = capsys.readouterr().err
    assert "Coverage: 16 of 16 GPUs observed, DRAM activity on 0. For remedies run" in said
    assert f"skuwise doctor --db {path}'" in said
    assert main(["advise", "--no-ledger", "--db", str(founding), "--since", "2d"]) == 0
    assert "Coverage:" not in capsys.readouterr().err  # where it is good


def test_advise_names_nodes_without_price_region_and_fabric_and_a_window_that_is_mostly_empty(
    founding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(
        founding, tmp_path / "it's bare.db", "UPDATE node SET region = NULL, node_sku = NULL, instance_type = NULL",
        "DELETE FROM fabric_hour", "DELETE FROM fabric_minute", "DELETE FROM fabric_sample",
    )  # fmt: skip
    assert main(["advise", "--no-ledger", "--db", str(path), "--since", "10d"]) == 0
    said = capsys.readouterr().err
    assert "Coverage: 48.0 h of 10.0 days observed; no price; no fabric counters; region unknown." in said
    assert "it'\"'\"'s bare.db'" in said  # to be copied into a shell
    found = document_databases(capsys, "--db", str(path), "--since", "2d")
    assert [one["code"] for one in found["gaps"]] == ["no-network", "node-sku-unknown", "no-price"]
