"""docs/energy.md: its settings are read by what they are examples of, and its week is what a report really says."""

from __future__ import annotations

import argparse
import email
import os
import re
from email.policy import default as default_policy
from pathlib import Path

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.cli.price_options import said_prices
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.simulate.loads.serving import Serving
from skuwise.advisor.simulate.simulator import plan_fleet, simulate
from skuwise.agent.model import ServingSample
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.catalog.price_files import load_prices
from skuwise.rules.catalog.site_energy import SiteEnergy

RENEW = bool(os.environ.get("RENEW_GOLDEN"))
PAGE = Path(__file__).parents[4] / "docs/energy.md"
MONDAY, NEXT = "2026-11-09", "2026-11-16"
TEAM = "search"
ROUTES = '[teams.search]\nsku = ["H100*"]\nto = ["search@example.org"]\n'
PAGE_SECONDS = 600.0


def block(name: str, language: str) -> str:
    shown = rf"^<!-- example: {name} -->\n```{language}\n(.*?)^```"
    found = re.search(shown, PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


def settings(folder: Path) -> Path:
    file = folder / "skuwise.toml"
    file.write_text(block("settings", "toml"))
    return file


def test_the_example_of_settings_is_one_and_a_price_file_says_the_same(tmp_path: Path) -> None:
    options = argparse.Namespace(gpu_hour_usd=[])
    toml = said_prices(options, {}, system_file=settings(tmp_path), config_home=tmp_path / "none").energy
    prices = tmp_path / "prices.yaml"
    prices.write_text(block("prices", "yaml"))
    assert toml == load_prices(prices).energy != SiteEnergy()


def with_tokens(folder: Path, start: float, end: float) -> None:
    """What the engines of the fleet's services would tell every ten minutes: simulated fleets have none."""
    fleet = plan_fleet("founding", seed=4, start=start, end=end)
    for planned in fleet.nodes:
        sim = planned.sim
        with Writer.open(folder / f"{sim.node.node}.db", now=lambda: end) as writer:
            node = writer.for_node(sim.node, start)
            node.set_workloads([p.workload for p in fleet.on(sim.node.node)], (), end)
            for placed in fleet.on(sim.node.node):
                if not isinstance(placed.model, Serving):
                    continue
                gpus = len(placed.nodes[sim.node.node])
                for begin, stop in placed.runs:
                    for at in np.arange(max(begin, start) + PAGE_SECONDS, min(stop, end) + 1, PAGE_SECONDS):
                        t = at - np.arange(PAGE_SECONDS)
                        writer.commit()  # a batch holds some hundred samples
                        n = placed.model.in_flight(t)
                        _, _, step = placed.model.step(np.maximum(n, 1.0), gpus, sim.gpu)
                        rate = (1 - np.exp(-n)) * np.maximum(n, 1.0) / step
                        node.add_serving(
                            ServingSample(
                                float(at), PAGE_SECONDS, "http://127.0.0.1:8000/metrics", "vllm",
                                {"generation_tokens_per_second": float(rate.mean())},
                                workload_id=placed.workload.workload_id,
                            )
                        )  # fmt: skip


@pytest.mark.slow
def test_the_week_of_a_team_is_what_the_report_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, end = parse_moment(f"{MONDAY}T00:00:00Z"), parse_moment(f"{NEXT}T00:00:00Z")
    fleet = tmp_path / "fleet"
    simulate("founding", fleet, days=7, seed=4, until=end)
    with_tokens(fleet, start, end)
    config = tmp_path / "config/skuwise"
    config.mkdir(parents=True)
    settings(config)
    (tmp_path / "teams.toml").write_text(ROUTES)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    mails = tmp_path / "mails"
    given = ["report", "--db", str(fleet), "--week", MONDAY, "--teams", str(tmp_path / "teams.toml"), "--only", TEAM]
    assert main([*given, "--preview", str(mails)]) == 0
    (letter,) = mails.glob("*.eml")
    message = email.message_from_bytes(letter.read_bytes(), policy=default_policy)
    plain = message.get_body(("plain",))
    assert plain is not None
    text = "\n".join(line.rstrip() for line in plain.get_content().splitlines())
    told = re.search(r"^Energy\n-+\n(.*?)\n\n[^\n]+\n---", text, re.MULTILINE | re.DOTALL)
    assert told is not None
    if RENEW:
        PAGE.write_text(PAGE.read_text().replace(block("week", "text"), f"{told[1]}\n"))
    assert block("week", "text") == f"{told[1]}\n"
