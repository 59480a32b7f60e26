"""serve's page over HTTP: files that are missing, damaged or replaced, and an address that is in use."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

from skuwise.advisor.cli.serve_page import ServedPage
from skuwise.advisor.metrics_page.site_state import PageLimits
from skuwise.agent.base.address import Address
from skuwise.tests.support.incident_builders import NOW


def served(folder: Path, said: list[str], port: int = 0) -> ServedPage:
    return ServedPage(
        Address("127.0.0.1", port), advice=folder / "advice.json", incidents=folder / "incidents.db",
        limits=PageLimits(), watch=lambda: None, say=said.append, now=lambda: NOW,
    )  # fmt: skip


def test_damaged_advice_is_told_once_and_the_page_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    page = served(tmp_path, said)
    page.start()
    try:
        (tmp_path / "advice.json").write_text('{"schema": "skuwise.advice/1", ')
        page.look()
        page.look()
        with urllib.request.urlopen(f"http://{page.server.address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        page.stop()
    assert "skuwise_advice_readable 0\n" in text and "skuwise_incident" not in text
    assert len([one for one in said if "not valid JSON" in one]) == 1


def test_a_port_in_use_is_one_sentence_and_a_remedy(tmp_path: Path) -> None:
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        page = served(tmp_path, said, taken.getsockname()[1])
        page.start()
        page.stop()
    assert "cannot listen" in said[0] and "serve.listen" in said[0]
