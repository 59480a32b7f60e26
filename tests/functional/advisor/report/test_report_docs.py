"""The examples of docs/report.md are read by what they are examples of."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from skuwise.advisor.cli.serve import ServeSettings, load_serve_settings
from skuwise.advisor.mail import settings as mail_settings
from skuwise.advisor.mail.routes import load_routes

PAGE = (Path(__file__).parents[4] / "docs/report.md").read_text()


def example(name: str, folder: Path) -> Path:
    found = re.search(rf"^<!-- example: {name} -->\n```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    file = folder / f"{name}.toml"
    file.write_text(found[1])
    return file


def test_the_example_of_routes_is_one(tmp_path: Path) -> None:
    routes = load_routes(example("routes", tmp_path))
    assert [team.name for team in routes.teams] == ["search", "ads"]
    assert routes.administrators == ("gpu-platform@example.org",) and routes.whose_node("gpu-17") == "ads"


def test_the_example_of_settings_is_one_and_names_every_key(tmp_path: Path) -> None:
    file = example("settings", tmp_path)
    settings = mail_settings.load_mail_settings({}, system_file=file, config_home=tmp_path)
    assert settings.send and settings.smtp_host == "smtp.example.org"
    for key in mail_settings.KEYS:
        assert re.search(rf"\b{key}\b", PAGE), key


@pytest.mark.parametrize("key", [f.name.removesuffix("_seconds") for f in fields(ServeSettings)])
def test_the_example_of_serve_is_one_and_names_every_key(tmp_path: Path, key: str) -> None:
    settings = load_serve_settings({}, system_file=example("serve", tmp_path), config_home=tmp_path)
    assert settings.snapshot_every_seconds == 3600.0
    assert re.search(rf"\b{key}\b", PAGE)
