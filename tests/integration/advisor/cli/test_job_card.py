"""``skuwise job`` on simulated nodes: the examples of docs/jobs.md, kept cards, lists, and what cannot be found."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.render.cards.text import card_text
from skuwise.advisor.simulate.simulator import simulate
from skuwise.tests.support.card_cases import busy_then_idle, only_card, window_of

RENEW = bool(os.environ.get("RENEW_GOLDEN"))
PAGE = Path(__file__).parents[4] / "docs/jobs.md"
END = parse_moment("2026-11-16T00:00:00Z")
SCENARIOS = ("fine-tuning", "input-bound")
USERS = ("chen", "dalia", "emre", "farah")


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nodes")
    for name in SCENARIOS:
        simulate(name, folder / f"{name}.db", days=3, seed=0, until=END, minutes_seconds=72 * 3600.0)
    return folder


def job_of(folder: Path, capsys: pytest.CaptureFixture[str], *, name: str = "lora-8b") -> str:
    """The id of a job of this name that ended, one whose whole life is in the data if there is one."""
    found = []
    for user in USERS:
        if main(["job", "--user", user, "--no-keep", "--format", "json", "--db", str(folder)]) == 0:
            found += json.loads(capsys.readouterr().out)["cards"]
    ended = [one for one in found if one["name"] == name and one["state"] == "ended"]
    return min(ended, key=lambda one: (one["data_since"] is not None, one["id"]))["job_id"]


def shown(job: str, folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["job", job, "--db", str(folder), *more]) == 0
    return capsys.readouterr().out


def agreed(name: str, text: str) -> str:
    """What docs/jobs.md shows under this name; written anew where it is renewed."""
    pattern = re.compile(rf"(<!-- example: {name} -->\n```text\n)(.*?)(```)", re.DOTALL)
    page = PAGE.read_text("utf-8")
    if RENEW:
        page = pattern.sub(lambda found: f"{found[1]}{text}{found[3]}", page)
        PAGE.write_text(page, "utf-8")
    found = pattern.search(page)
    assert found is not None, name
    return found[2]


@pytest.mark.parametrize(("name", "job"), [("good", "lora-8b"), ("wasteful", "pretrain-7b")])
def test_the_examples_of_the_page(name: str, job: str, databases: Path, capsys) -> None:
    text = shown(job_of(databases, capsys, name=job), databases, capsys, "--no-keep")
    assert agreed(name, text) == text
    assert len(text.splitlines()) <= 25 and max(map(len, text.splitlines())) <= 100


def test_the_example_of_a_job_that_hangs() -> None:
    text = card_text(only_card(window_of(busy_then_idle(5, 3))))
    assert agreed("hung", text) == text
    assert "Check whether it hangs" in text


def test_what_is_not_there_is_nothing_to_work_on(databases: Path, capsys) -> None:
    assert main(["job", "lora-8", "--db", str(databases)]) == 3
    assert "lora-8b" in capsys.readouterr().err
    assert main(["job", "999999999"]) == 3
    assert main(["job", "--user", "nobody", "--db", str(databases)]) == 3
    assert main(["job", "\x1b[2J';--", "--db", str(databases)]) == 3
    assert "\x1b" not in capsys.readouterr().err
