import re
from dataclasses import replace

from skuwise.advisor.core.advice_types import Decision
from skuwise.advisor.render import render
from skuwise.tests.support.report_fixtures import END, fleet


def test_the_page_leaves_nothing_out():
    advice = fleet(15, 3)
    html = render(advice, "html")
    for one in (*advice.findings, *advice.recommendations):
        assert one.id in html
    for workload in advice.workloads:
        assert f">{workload.name}<" in html
    assert "attached" not in html


def test_the_page_stands_alone():
    html = render(fleet(), "html")
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in html
    assert not re.search(r"<(script|link|iframe|form|object)\b", html)
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]*)"', html))
    assert "url(" not in html
    assert "@media print" in html


def test_the_page_says_what_was_decided_and_what_others_would_charge():
    advice = fleet(1, 1)
    (way,) = advice.recommendations
    kept = replace(way, decision=Decision("dismissed", END, "ann", None, "a <warm> standby"))
    html = render(replace(advice, recommendations=(kept,), market=(way,)), "html")
    assert "Decision: dismissed by ann on 2026-11-16: a &lt;warm&gt; standby." in html
    assert "Other providers, for comparison only" in html
    assert "Other providers" not in render(advice, "html")
