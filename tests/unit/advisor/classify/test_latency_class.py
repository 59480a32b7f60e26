"""Which latency class a service has: a site's word, what its engine measures, what its kind tells, or none."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pandas as pd
import pytest
from skuwise.advisor.classify.accounting.workload_verdicts import with_latency
from skuwise.advisor.core.verdict_types import Latency, Owner, WorkloadVerdict
from skuwise.agent.statistics.latency_bins import encode, spread
from skuwise.rules.policy.latency_classes import LatencyClasses, load_latency_classes
from skuwise.tests.support.moves_builders import END, workload

SHIPPED = load_latency_classes()
QUICK = {0.08: 0.5, 0.1: 0.95, 0.5: 1.0}
MIDDLING = {0.1: 0.1, 0.3: 0.8, 0.5: 0.95, 1.0: 1.0}
SLOW = {0.5: 0.1, 2.0: 0.995, 5.0: 1.0}
TOO_SLOW = {2.0: 0.1, 10.0: 1.0}
TOKENS = {0.02: 0.5, 0.04: 0.85, 0.05: 0.95, 0.1: 1.0}


def row(work: str, ts: float, first: dict[float, float] | None, token: dict[float, float] | None = None, count=2000.0):
    def told(shares: dict[float, float] | None) -> str | None:
        if shares is None:
            return None
        counts = spread({**{edge: share * count for edge, share in shares.items()}, 20.0: count, inf: count})
        return encode(counts) if counts is not None else None

    return {"workload_id": work, "latency_ts": ts, "first_token_bins": told(first), "output_token_bins": told(token)}


def table(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["workload_id", "latency_ts", "first_token_bins", "output_token_bins"])


def latency_of(w: WorkloadVerdict, *rows: dict[str, object], classes: LatencyClasses = SHIPPED) -> Latency | None:
    return with_latency([w], table(*rows), classes)[0].latency


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
    told = latency_of(workload(), row("w-chat", END, first, token))
    assert told is not None
    assert (told.label, told.basis) == (label, "measured")
    assert told.limits == (dict(SHIPPED.classes[label].limits) if label else {})
    assert told.evidence[0].code == ("latency-class-kept" if label else "latency-class-none")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "no engine histogram"),
        ([("w-chat", END, QUICK, None, 60.0)], "too few"),
        ([("w-chat", END, None, TOKENS)], "time to first token"),
    ],
)
def test_what_nobody_measured_is_taken_from_its_kind_and_said_so(rows: list[tuple], why: str) -> None:
    told = latency_of(workload(), *(row(*one) for one in rows))
    assert told is not None
    assert (told.label, told.basis, told.first_token is None) == ("waited-for", "kind", why != "too few")
    assert why in told.evidence[0].text
    if told.first_token is not None:
        assert told.first_token.p50 is not None and told.first_token.p99 is None


@pytest.mark.parametrize("kind", ["training", "fine-tuning", "interactive", "idle", "unknown"])
def test_what_nobody_waits_for_by_the_token_has_none(kind: str) -> None:
    assert latency_of(workload(kind=kind), row("w-chat", END, QUICK)) is None


def test_a_sites_word_comes_first_whatever_is_measured(tmp_path: Path) -> None:
    (tmp_path / "latency_classes.yaml").write_text(
        "services:\n  a: {class: interactive, match: {namespace: [chat]}, reason: people type}\n"
    )
    classes = load_latency_classes(tmp_path)
    own = workload(owner=Owner(namespace="chat"))
    told = latency_of(own, row("w-chat", END, TOO_SLOW), classes=classes)
    assert told is not None
    assert (told.label, told.basis) == ("interactive", "site")
    assert told.evidence[0].text == "Latency class interactive: people type (site rules, entry a)."
    assert latency_of(workload(owner=own.owner, kind="training"), classes=classes) is not None


def test_figures_are_of_the_busy_hours_and_of_all_replicas_of_the_series() -> None:
    replicas = [workload("chat", ("n1",)), workload("chat", ("n2",), id="w-chat-2")]
    noon = [row("w-chat", END, MIDDLING), row("w-chat-2", END - 10, MIDDLING)]
    night = [row("w-chat", END - 3600 * n, QUICK, count=100.0) for n in range(1, 12)]
    one, two = (w.latency for w in with_latency(replicas, table(*noon, *night), SHIPPED))
    assert one == two
    assert one is not None and one.first_token is not None
    assert (one.label, one.busy_hours, one.first_token.counted) == ("documents", 1.0, 4000.0)
