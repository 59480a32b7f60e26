"""How requests identify us: files that are read again for each request, and settings that cannot be."""

from __future__ import annotations

import base64
import importlib
from pathlib import Path

import pytest
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.client.response import UnreachableError
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.fake_prometheus import FakePrometheus, Reply, Request, error, vector


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.mark.parametrize(
    ("settings", "header", "expected"),
    [
        (PrometheusSettings(bearer_token_file="secret"), "authorization", "Bearer {}"),
        (PrometheusSettings(header_files={"X-Api-Key": "secret"}), "x-api-key", "{}"),
        (PrometheusSettings(username="u", password_file="secret"), "authorization", ""),
    ],
)  # fmt: skip
def test_a_secret_that_expires_between_two_queries_is_read_again(
    tmp_path: Path, settings: PrometheusSettings, header: str, expected: str
) -> None:
    valid = "first gehe\u4e2dm" if not expected else "first"

    def answer(request: Request) -> Reply:
        wanted = expected.format(valid) or basic("u", valid)
        return vector(({}, 1)) if request.headers[header] == wanted else error(401, f"not {wanted}")

    with FakePrometheus(answer).running() as fake:
        (tmp_path / "secret").write_text(f"{valid}\n")
        client = Client(fake.url, settings, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
        assert client.scalar("up", 0.0) == 1
        valid = "second"
        with pytest.raises(UnreachableError, match="Access denied") as caught:
            client.scalar("up", 0.0)
        assert "first" not in str(caught.value) and "second" not in str(caught.value)
        (tmp_path / "secret").write_text(valid)
        assert client.scalar("up", 0.0) == 1
        assert not any("second" in str(dict(request.params)) for request in fake.requests)


@pytest.mark.parametrize("settings", [
    PrometheusSettings(bearer_token_file="secret"), PrometheusSettings(header_files={"X-One": "secret"}),
    PrometheusSettings(headers={"X-One": " gehe"}), PrometheusSettings(bearer_token_file="missing"),
    PrometheusSettings(bearer_token_file="plain", username="u"), PrometheusSettings(username="u", login="aws"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused_without_repeating_a_secret(
    tmp_path: Path, settings: PrometheusSettings
) -> None:
    (tmp_path / "secret").write_text("gehe\u4e2dm")
    (tmp_path / "plain").write_text("gehe")
    with pytest.raises(UsageError) as caught:
        Client("http://localhost:1", settings, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert "gehe" not in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize("login", ["aws", "google", "azure"])
def test_a_login_whose_extra_is_not_installed_names_it(login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UsageError, match="not installed") as caught:
        Client("http://localhost:1", PrometheusSettings(login=login), {})
    assert caught.value.remedy == f"Run pip install 'skuwise[{login}]'."
