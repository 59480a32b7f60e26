"""Asking a server: how it is reached, and what happens when it answers badly."""

import base64
import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.telemetry.prometheus.client import response
from skuwise.advisor.telemetry.prometheus.client.client import Client, PrometheusSettings
from skuwise.advisor.telemetry.prometheus.client.response import Grid, LabelSets, UnreachableError, read_vector
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.fake_prometheus import Answer, FakePrometheus, Reply, Request, error, matrix, vector

GRID = Grid(3600.0, 3 * 3600.0, 3600.0)


def ask(answer: Answer | Reply, nap: Callable[[float], object] = float, most_bytes: int = 1 << 24) -> np.ndarray:
    """The values of a range query to a server that answers so. `nap`: gets the pauses, without sleeping."""
    reply = answer if callable(answer) else (lambda _: answer)
    with FakePrometheus(reply).running() as fake:
        client = Client(fake.url, PrometheusSettings(), {}, sleep=nap, max_answer_bytes=most_bytes)
        return client.range("up", GRID).values


def series(entry: bytes) -> bytes:
    """An answer that holds this series."""
    return b'{"status":"success","data":{"resultType":"matrix","result":[' + entry + b"]}}"


@pytest.mark.parametrize("body", [
    b"<!DOCTYPE html><html>log in</html>", b'{"status":"success","data":{"resultType":"matrix","res', b"[1, 2]",
    b'{"status":"success","data":[]}', b"[" * 100_000, series(b'{"metric":{},"values":7}'),
    series(b'{"metric":{"a":1},"values":[]}'), series(b'{"metric":{},"values":[[60,"1"]]}'),
    series(b'{"metric":{},"values":[[9e9,"1"]]}'), vector(({}, 1)).body,
    *(series(b'{"metric":{},"values":[[3600,%s]]}' % value)
      for value in (b'"x"', b'"0x1"', b"null", b'""', b"[]", b'"1","2"')),
])  # fmt: skip
def test_an_invalid_answer_is_refused(body: bytes) -> None:
    with pytest.raises(response.AnswerError, match="not a result of a Prometheus query"):
        ask(Reply(body))


@pytest.mark.parametrize(
    ("status", "wanted", "pauses"),
    [(429, "", [0.5, 1]), (502, "", [0.5, 1]), (503, "soon", [0.5, 1]), (504, "", [0.5, 1]), (429, "7", [7, 14])],
)
def test_a_busy_server_is_asked_again_after_growing_pauses(status: int, wanted: str, pauses: list[float]) -> None:
    replies = [error(status, "busy", Retry_After=wanted), error(status, "busy")]
    naps: list[float] = []

    def answer(request: Request) -> Reply:
        return replies.pop(0) if replies else matrix(request, ({}, 1))

    assert ask(answer, naps.append).shape == (1, 3) and naps == pauses


def test_a_server_that_answers_nothing_for_long_is_given_up() -> None:
    now = 0.0

    def timed_out(_: Request) -> Reply:
        nonlocal now
        now += 2.0
        return error(503, "query timed out in expression evaluation")

    with FakePrometheus(timed_out).running() as fake:
        client = Client(fake.url, PrometheusSettings(timeout_seconds=2), {}, sleep=[].append, monotonic=lambda: now)
        for _ in range(4):
            with pytest.raises(response.TooMuchError):
                client.scalar("up", 0.0)
        with pytest.raises(response.UnreachableError, match="for 10 s"):
            client.scalar("up", 0.0)


def test_a_server_that_stays_broken_is_given_up_and_its_words_are_harmless() -> None:
    with pytest.raises(response.RefusedError) as caught:
        ask(error(500, "boom \x1b[31m<script>" + "x" * 5000))
    assert "boom" in str(caught.value) and "\x1b" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("reply", "is_too_much", "remedy"),
    [
        (error(422, "query processing would load too many samples into memory"), True, "shorter window"),
        (error(400, "exceeded maximum resolution of 11,000 points per timeseries"), True, "shorter window"),
        (error(503, "query timed out in expression evaluation"), True, "shorter window"),
        (error(422, "the matching timeseries exceeds 300000; ... -search.maxUniqueTimeseries"), True, "--match"),
        (error(504, ""), True, "shorter window"),
        (error(413, ""), True, "shorter window"),
        (error(400, "parse error: unexpected end"), False, "Check --match."),
        (error(500, "boom"), False, "Try again later."),
        (error(200, "no such thing"), False, "Check --match."),
        (Reply(b"<html>", 404), False, "Check the URL"),
    ],
    ids=lambda value: str(getattr(value, "status", value)),
)  # fmt: skip
def test_the_remedy_fits_the_error(reply: Reply, is_too_much: bool, remedy: str) -> None:
    with pytest.raises(response.RefusedError) as caught:
        ask(reply)
    assert isinstance(caught.value, response.TooMuchError) == is_too_much and remedy in caught.value.remedy
    assert is_too_much or "window" not in caught.value.remedy


def test_a_truncated_answer_is_asked_again_and_then_an_error() -> None:
    naps: list[float] = []
    with pytest.raises(response.UnreachableError, match="cannot be read"):
        ask(Reply(b"{", broken=True), naps.append)
    assert len(naps) == 3


@pytest.mark.parametrize("status", [401, 403, 302])
def test_refusal_and_redirection_end_the_run(status: int) -> None:
    with pytest.raises(response.UnreachableError):
        ask(Reply(b"", status, {"Location": "http://elsewhere.example/"}))


@pytest.mark.parametrize("url", [
    "http://u:hunter2@h:9090", "u:hunter2@h:9090", "https:/u:hunter2@h", "http://h/?token=hunter2", "ftp://h", "h:9090",
    "http://h/?q=1", "http://h:x", "",
])  # fmt: skip
def test_an_invalid_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Client(url, PrometheusSettings(), {})
    assert "hunter2" not in str(caught.value)


PARTS = (b"[],", b"{},", b'"ab",', b"1,", b'{"metric":{}},')


@pytest.mark.parametrize("body", [b" " * 3_000_000, *(b'{"data":[' + part * 50_000 + b"1]}" for part in PARTS)])
def test_bytes_and_members_of_an_answer_are_counted_before_it_is_decoded(body: bytes, monkeypatch) -> None:
    monkeypatch.setattr(response, "MAX_MEMBERS", 50_000)
    with pytest.raises(response.TooMuchError, match="too large"):
        ask(Reply(body), most_bytes=1_000_000)


def test_what_is_not_finite_is_missing_and_extremes_are_numbers() -> None:
    values = ["NaN", "+Inf", "-Inf", "1" * 400, "1e400", "1e308", "-5e-324", "-1", "0"]
    body = vector(*(({"a": str(n)}, value) for n, value in enumerate(values))).body
    results = read_vector(body, None, LabelSets()).values[:, 0]
    assert np.isnan(results[:5]).all() and results[5:].tolist() == [1e308, -5e-324, -1.0, 0.0]


def test_labels_are_harmless_and_equal_sets_are_one_object() -> None:
    label_sets = LabelSets()
    body = vector(({"a\x1b[31m": "b\x07", "c": "d", "e": ""}, 1)).body
    first, second = (read_vector(body, None, label_sets).labels[0] for _ in range(2))
    assert first == {"a[31m": "b", "c": "d"} and first is second
    assert read_vector(body, ("c",), label_sets).labels == ({"c": "d"},)


@pytest.mark.parametrize(
    ("settings", "header", "expected"),
    [
        (PrometheusSettings(bearer_token_file="secret"), "authorization", "Bearer {}"),
        (PrometheusSettings(header_files={"X-Api-Key": "secret"}), "x-api-key", "{}"),
        (PrometheusSettings(username="u", password_file="secret"), "authorization", ""),
    ],
)  # fmt: skip
def test_an_expired_secret_is_read_again(tmp_path: Path, settings: PrometheusSettings, header: str, expected) -> None:
    valid = "first gehe\u4e2dm" if not expected else "first"

    def answer(request: Request) -> Reply:
        wanted = expected.format(valid) or f"Basic {base64.b64encode(f'u:{valid}'.encode()).decode()}"
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
def test_impossible_settings_are_refused_without_a_secret(tmp_path: Path, settings: PrometheusSettings) -> None:
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
        Client("http://localhost:1", PrometheusSettings(login=login), {})  # type: ignore[arg-type]
    assert caught.value.remedy == f"Run pip install 'skuwise[{login}]'."
