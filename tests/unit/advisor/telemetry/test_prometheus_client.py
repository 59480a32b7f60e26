"""Asking a server: how it is reached, and what happens when it answers badly."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.telemetry.prometheus.client.client import Client, RefusedError, TooMuchError, UnreachableError
from skuwise.advisor.telemetry.prometheus.client.response import AnswerError, Grid
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.fake_prometheus import Answer, FakePrometheus, Reply, Request, error, matrix, success, vector

GRID = Grid(3600.0, 3 * 3600.0, 3600.0)


class Naps:
    """Pauses that are counted, not slept."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def ask(answer: Answer | Reply, naps: Naps | None = None, most_bytes: int = 1 << 24) -> np.ndarray:
    """The values of a range query to a server that answers so."""
    reply = answer if callable(answer) else (lambda _: answer)
    with FakePrometheus(reply).running() as fake:
        client = Client(fake.url, PrometheusSettings(), {}, sleep=naps or Naps(), max_answer_bytes=most_bytes)
        return client.range("up", GRID).answer.values


def test_what_a_server_says_is_read_with_gaps_and_what_is_no_number_as_missing() -> None:
    def answer(request: Request) -> Reply:
        return matrix(request, ({"a": "1"}, [1.5, "NaN", "+Inf"]), ({"a": "2"}, [2]))

    assert np.array_equal(ask(answer), [[1.5, np.nan, np.nan], [2, np.nan, np.nan]], equal_nan=True)


def series(one: bytes) -> bytes:
    """An answer that holds this series."""
    return b'{"status":"success","data":{"resultType":"matrix","result":[' + one + b"]}}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!DOCTYPE html><html>log in</html>", "HTML page"),
        (b'{"status":"success","data":{"resultType":"matrix","res', "invalid or incomplete JSON"),
        (b'{"status":"success","data":[]}', "no query result"),
        (b"[1, 2]", "expected a JSON object"),
        (b"[" * 100_000, "invalid or incomplete JSON"),
        (series(b'{"metric":{},"values":7}'), "no values"),
        (series(b'{"metric":{"a":1},"values":[]}'), "not a string"),
        (series(b'{"metric":{},"values":[[3600,"x"]]}'), "number"),
        (series(b'{"metric":{},"values":[[60,"1"]]}'), "times that were not requested"),
        (series(b'{"metric":{},"values":[[3600,1' + b"0" * 400 + b"]]}"), "invalid or incomplete JSON"),
        (series(b'{"metric":{},"values":[[3600,"1","2"]]}'), "not a pair"),
        (series(b'{"metric":{},"values":[7]}'), "not a pair"),
        (series(b'{"metric":{},"values":[[9e9,"1"]]}'), "times that were not requested"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_refused_by_what_it_is(body: bytes, said: str) -> None:
    with pytest.raises(AnswerError, match=said):
        ask(Reply(body))


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_that_is_busy_for_a_moment_is_asked_again_after_growing_pauses(status: int) -> None:
    replies = [error(status, "busy"), error(status, "busy")]
    naps = Naps()

    def answer(request: Request) -> Reply:
        return replies.pop() if replies else matrix(request, ({}, 1))

    assert ask(answer, naps).shape == (1, 3)
    assert len(naps.seconds) == 2 and naps.seconds[1] > naps.seconds[0]


def test_a_server_may_ask_for_a_longer_pause_but_not_for_an_endless_one() -> None:
    replies = [error(429, "slow down", Retry_After="7"), error(429, "slow down", Retry_After="200")]
    naps = Naps()

    def answer(request: Request) -> Reply:
        return replies.pop(0) if replies else matrix(request, ({}, 1))

    ask(answer, naps)
    assert naps.seconds == [7, 30]


@pytest.mark.parametrize("wanted", ["3", "nan", "-1", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_pauses_end_with_the_time_that_a_server_is_given(wanted: str) -> None:
    now = 0.0
    naps = Naps()

    def sleep(seconds: float) -> None:
        nonlocal now
        naps(seconds)
        now += seconds

    with FakePrometheus(lambda _: error(503, "busy", Retry_After=wanted)).running() as fake:
        client = Client(fake.url, PrometheusSettings(timeout_seconds=2), {}, sleep=sleep, monotonic=lambda: now)
        for _ in range(4):
            with pytest.raises((RefusedError, UnreachableError)):
                client.scalar("up", 0.0)
    assert naps.seconds and now <= 5 * 2


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip, gzip, deflate", ", ".join(["gzip"] * 40)])
def test_an_answer_that_cannot_be_decoded_is_not_asked_for_again(encoding: str) -> None:
    naps = Naps()
    with FakePrometheus(lambda _: Reply(b"no gzip", headers={"Content-Encoding": encoding})).running() as fake:
        client = Client(fake.url, PrometheusSettings(), {}, sleep=naps)
        with pytest.raises(AnswerError, match="cannot be decoded") as caught:
            client.scalar("up", 0.0)
        assert (naps.seconds, len(fake.requests)) == ([], 1) and caught.value.remedy


def test_a_server_that_stays_broken_is_given_up_and_its_words_are_harmless() -> None:
    with pytest.raises(RefusedError) as caught:
        ask(error(500, "boom \x1b[31m<script>" + "x" * 5000))
    assert "boom" in str(caught.value) and "\x1b" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "reply",
    [
        error(422, "query processing would load too many samples into memory in query execution"),
        error(400, "exceeded maximum resolution of 11,000 points per timeseries"),
        error(503, "query timed out in expression evaluation"),
        error(422, "the number of matching timeseries exceeds 300000; ... -search.maxUniqueTimeseries"),
    ],
)
def test_a_query_over_a_limit_is_told_from_one_that_is_wrong(reply: Reply) -> None:
    naps = Naps()
    with pytest.raises(TooMuchError):
        ask(reply, naps)
    assert naps.seconds == [], "asking the same again gives the same"
    with pytest.raises(RefusedError) as caught:
        ask(error(400, "parse error: unexpected end"))
    assert not isinstance(caught.value, TooMuchError)


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    with pytest.raises(TooMuchError, match="too large"):
        ask(Reply(b" " * 3_000_000), most_bytes=1_000_000)


def test_a_broken_connection_is_tried_again_and_then_said() -> None:
    naps = Naps()
    with pytest.raises(UnreachableError, match="cannot be read"):
        ask(Reply(b"{", broken=True), naps)
    assert len(naps.seconds) == 3


@pytest.mark.parametrize("status", [401, 403, 302])
def test_refusal_and_redirection_end_the_run(status: int) -> None:
    with pytest.raises(UnreachableError):
        ask(Reply(b"", status, {"Location": "http://elsewhere.example/"}))


def test_warnings_and_partial_answers_are_told() -> None:
    with FakePrometheus(lambda r: matrix(r, ({}, 1), warnings=["store \x07down"], isPartial=True)).running() as fake:
        told = Client(fake.url, PrometheusSettings(), {}).range("up", GRID)
    assert told.notes == ("store down", "The server reports a partial answer.")


def test_secrets_come_from_files_and_go_into_headers_only(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    settings = PrometheusSettings(
        bearer_token_file="token", tenant="team-a", headers={"X-One": "1"}, header_files={"X-Two": "token"}
    )
    with FakePrometheus(lambda _: vector(({}, 1))).running() as fake:
        client = Client(fake.url, settings, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
        assert client.scalar("vector(1)", 0.0) == 1
        headers = fake.requests[0].headers
    assert headers["authorization"] == "Bearer s3cret" and headers["x-two"] == "s3cret"
    assert headers["x-scope-orgid"] == "team-a" and headers["x-one"] == "1"
    assert "s3cret" not in json.dumps(dict(fake.requests[0].params))


def test_a_user_and_a_password_are_sent_as_basic_auth(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p w")
    settings = PrometheusSettings(username="u", password_file=str(tmp_path / "password"))
    with FakePrometheus(lambda _: vector(({}, 1))).running() as fake:
        Client(fake.url, settings, {}).scalar("vector(1)", 0.0)
        assert fake.requests[0].headers["authorization"] == "Basic dTpwIHc="


def test_secrets_beyond_ascii_are_sent_as_utf_8_or_refused_without_repeating_them(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("gehe\u4e2dm")
    name = str(tmp_path / "secret")
    with FakePrometheus(lambda _: vector(({}, 1))).running() as fake:
        Client(fake.url, PrometheusSettings(username="u", password_file=name), {}).scalar("vector(1)", 0.0)
        sent = fake.requests[0].headers["authorization"].removeprefix("Basic ")
        assert base64.b64decode(sent).decode() == "u:gehe\u4e2dm"
        for settings in (
            PrometheusSettings(bearer_token_file=name), PrometheusSettings(header_files={"X-One": name}),
            PrometheusSettings(headers={"X-One": " gehe"}),
        ):  # fmt: skip
            with pytest.raises(UsageError, match="header") as caught:
                Client(fake.url, settings, {})
            assert "gehe" not in str(caught.value)


@pytest.mark.parametrize("url", [
    "http://u:hunter2@h:9090", "u:hunter2@h:9090", "https:/u:hunter2@h", "http://h/?token=hunter2", "ftp://h", "h:9090",
    "http://h/?q=1", "http://h:x", "",
])  # fmt: skip
def test_an_address_that_is_none_or_holds_a_password_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Client(url, PrometheusSettings(), {})
    assert "hunter2" not in str(caught.value)


def test_a_missing_certificate_is_a_wrong_setting() -> None:
    client = Client("https://127.0.0.1:1", PrometheusSettings(ca_file="/nonexistent/ca.pem"), {}, sleep=Naps())
    with pytest.raises(UsageError, match="certificate"):
        client.scalar("vector(1)", 0.0)


def test_names_are_asked_of_the_index() -> None:
    with FakePrometheus(lambda _: success(["a", "b"])).running() as fake:
        assert Client(fake.url, PrometheusSettings(), {}).names('{a="b"}', 0, 60) == ("a", "b")
        assert fake.requests[0].params == {"match[]": '{a="b"}', "start": "0.000", "end": "60.000"}
