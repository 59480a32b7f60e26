"""Servers that never come to an end, or answer with what fills the memory: every client leaves them in time, says so in
a sentence, and leaves nothing behind. What must end is given a minute, many times what it may take."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.headerregistry import Address

import numpy as np
import pytest
from skuwise.advisor.core.frame import Window
from skuwise.advisor.mail.delivery import CarrierDownError
from skuwise.advisor.mail.outbox import Parcel
from skuwise.advisor.mail.settings import ReportSettings, Security
from skuwise.advisor.mail.smtp import SmtpCarrier
from skuwise.advisor.mail.webhook import WebhookCarrier
from skuwise.advisor.telemetry.prometheus.client import range_planner as plan
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.client.errors import AnswerError, RefusedError, TooMuchError, UnreachableError
from skuwise.advisor.telemetry.prometheus.client.memory_budget import MemoryBudget
from skuwise.advisor.telemetry.prometheus.client.response import Grid
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.agent.base.deadline import Deadline, resolve_host
from skuwise.agent.base.page_url import PageError
from skuwise.agent.slurm_jobs.rest import ask_slurmrestd
from skuwise.agent.slurm_jobs.settings import SlurmImportSettings
from skuwise.agent.sources.scrape.http_fetch import read_page
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.fake_prometheus import FakePrometheus, Reply, Request, error, matrix, vector
from skuwise.tests.support.hostile_server import MANNERS, OK, HostileServer, Manner, answers, bomb, says

SECONDS = 0.4
GRID = Grid(3600.0, 3 * 3600.0, 3600.0)
PARCEL = Parcel("2026-11-16", "", "webhook", "<id>", "s", b"{}", ("webhook",))
Ask = Callable[[str], object]
_MATRIX = b'{"status":"success","data":{"resultType":"matrix","result":[%s]}}'


def of_prometheus(url: str, seconds: float = SECONDS, **given: object) -> Client:
    return Client(url, PrometheusSettings(timeout_seconds=seconds), {}, sleep=lambda _: None, **given)  # type: ignore[arg-type]


def ask_prometheus(url: str) -> object:
    client = of_prometheus(url)
    try:
        return client.scalar("vector(1)", 0.0)
    finally:
        client.close()


def ask_webhook(url: str) -> object:
    carrier = WebhookCarrier({"": url}, timeout_seconds=SECONDS)
    try:
        reply = carrier.carry(PARCEL)["webhook"]
    finally:
        carrier.close()
    if reply.result == "later":
        raise SkuwiseError(reply.text)
    return reply


def ask_slurm(url: str) -> object:
    return ask_slurmrestd(SlurmImportSettings(slurmrestd=url), 0.0, timeout_seconds=SECONDS)


def ask_page(url: str) -> object:
    return read_page(f"{url}/metrics", ("up",), total_seconds=SECONDS)


def left(manner: Callable[[], Manner], ask: Ask) -> object:
    """What came of asking a server of this manner: an answer, or the error. It is asked in a thread, to see it end."""
    told: list[object] = []

    def go(url: str) -> None:
        try:
            told.append(ask(url))
        except SkuwiseError as found:
            told.append(found)

    with HostileServer(manner).running() as server:
        asking = threading.Thread(target=go, args=(server.url,), daemon=True)
        asking.start()
        asking.join(60)
        assert told, "it is still there"
        assert server.gone(), f"a connection was left behind after {told}"
    return told[0]


def nothing_left() -> bool:
    return not [thread.name for thread in threading.enumerate() if thread.name.startswith("skuwise-deadline")]


@pytest.mark.parametrize("ask", [ask_prometheus, ask_webhook, ask_slurm, ask_page])
def test_a_server_that_never_comes_to_an_end_is_left(ask: Ask) -> None:
    with ThreadPoolExecutor(len(MANNERS)) as pool:
        told = dict(zip(MANNERS, pool.map(lambda name: left(MANNERS[name], ask), MANNERS), strict=True))
    for name, one in told.items():
        # A webhook is content with the head of an answer.
        assert isinstance(one, SkuwiseError) or (ask is ask_webhook and "1xx" not in name), (name, one)
        assert len(str(one)) < 300 and str(one).isprintable()
    assert isinstance(told["drips the status line"], SkuwiseError) and isinstance(told["endless headers"], SkuwiseError)
    assert nothing_left()


def test_a_late_answer_is_not_asked_for_again_as_it_is() -> None:
    with HostileServer(MANNERS["drips headers"]).running() as server:
        with pytest.raises(TooMuchError, match=r"within 0\.2 s"):
            of_prometheus(server.url, 0.2).range("up", GRID)
        assert server.met == 1


def test_a_server_that_answers_nothing_for_long_is_left_for_good() -> None:
    with HostileServer(MANNERS["hears and says nothing"]).running() as server:
        client = of_prometheus(server.url, 0.1)
        found: list[type[Exception]] = []
        for _ in range(8):
            with pytest.raises(RefusedError if len(found) < 4 else (RefusedError, UnreachableError)) as caught:
                client.range("up", GRID)
            found.append(caught.type)
        assert UnreachableError in found


def test_a_server_that_is_busy_for_ever_is_left_and_one_answer_makes_it_a_new_one() -> None:
    clock = itertools.count(0.0, 10.0)
    replies = itertools.chain([error(503, "busy")] * 4, [vector(({}, 1))], itertools.repeat(error(503, "busy")))
    with FakePrometheus(lambda _: next(replies)).running() as fake:
        client = of_prometheus(fake.url, 30.0, monotonic=lambda: float(next(clock)))
        with pytest.raises(TooMuchError, match="503"):
            client.scalar("a", 0.0)
        assert client.scalar("b", 0.0) == 1.0
        with pytest.raises(TooMuchError, match="503"):
            client.scalar("c", 0.0)
        with pytest.raises(UnreachableError, match="No answer from"):
            for _ in range(5):
                try:
                    client.scalar("d", 0.0)
                except RefusedError:
                    continue


def test_attempts_end_after_a_time_and_not_only_after_some_number() -> None:
    clock = itertools.count(0.0, 50.0)
    with FakePrometheus(lambda _: error(503, "busy")).running() as fake:
        with pytest.raises(RefusedError):
            of_prometheus(fake.url, 60.0, monotonic=lambda: float(next(clock))).scalar("a", 0.0)
        assert 1 < len(fake.requests) < 4


HANDSHAKE = says(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc", then=itertools.repeat(b"\x03"), hears=False)


def secure(ask: Ask) -> Ask:
    return lambda url: ask(url.replace("http:", "https:"))


@pytest.mark.parametrize("ask", [secure(ask_prometheus), secure(ask_webhook), secure(ask_slurm)])
@pytest.mark.parametrize("manner", [HANDSHAKE, says(b"", hears=False)], ids=["drips", "silent"])
def test_a_handshake_that_never_ends_is_left(ask: Ask, manner: Manner) -> None:
    assert isinstance(left(lambda: manner, ask), SkuwiseError) and nothing_left()


@pytest.mark.parametrize("manner", ["drips the status line", "drips headers", "hears and says nothing"])
def test_a_proxy_that_never_connects_is_left(manner: str) -> None:
    def ask(url: str) -> object:
        settings = PrometheusSettings(timeout_seconds=SECONDS, proxy=url)
        return Client("https://prometheus.invalid", settings, {}, sleep=lambda _: None).scalar("vector(1)", 0.0)

    assert isinstance(left(MANNERS[manner], ask), SkuwiseError)


def ask_mail(url: str, security: Security = "none") -> object:
    settings = ReportSettings(
        sender=Address("", addr_spec="gpus@example.org"), smtp_host="127.0.0.1", smtp_port=int(url.rpartition(":")[2]),
        smtp_security=security, smtp_timeout_seconds=0.1,
    )  # fmt: skip
    carrier = SmtpCarrier(settings, "")
    try:
        carrier.ready(PARCEL)
    finally:
        carrier.close()
    return None


MAIL: dict[str, tuple[Manner, Security]] = {
    "says nothing": (says(b"", hears=False), "none"),
    "drips the greeting": (says(b"", then=itertools.repeat(b"2"), hears=False), "none"),
    "a greeting without an end": (
        says(b"", then=itertools.repeat(b"220-x\r\n" * 1000), drips=False, hears=False), "none",
    ),
    "drips TLS": (HANDSHAKE, "tls"),
    "drips TLS after STARTTLS": (
        says(b"220 a\r\n250-a\r\n250 STARTTLS\r\n220 go\r\n\x16\x03\x03\x40\x00\x02\x00\x3f\xfc",
             then=itertools.repeat(b"\x03"), hears=False), "starttls",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MAIL)
def test_a_mail_server_that_never_comes_to_an_end_is_left(name: str) -> None:
    manner, security = MAIL[name]
    told = left(lambda: manner, lambda url: ask_mail(url, security))
    assert isinstance(told, CarrierDownError) and "cannot be reached" in str(told), told
    assert nothing_left()


def test_a_name_that_nobody_resolves_is_not_waited_for() -> None:
    with pytest.raises(OSError):
        resolve_host("no-such-host.invalid", 80, 0.0)
    with Deadline(30.0) as deadline, pytest.raises(OSError):
        deadline.connect("127.0.0.1", 1)
    with pytest.raises(PageError):
        read_page("http://no-such-host.invalid/metrics", ("up",), remote=True, total_seconds=0.01)


def test_a_redirect_is_neither_read_nor_taken_apart() -> None:
    compressed = b"HTTP/1.1 302 no\r\nContent-Encoding: gzip\r\nLocation: %s\r\n"
    body = bomb(60)
    for where in (b"http://[", b"http://elsewhere.example/", b"\xff"):
        with HostileServer(lambda where=where: answers(body, compressed % where)).running() as server:
            with pytest.raises(UnreachableError, match=r"redirected the request \(HTTP 302\)"):
                of_prometheus(server.url, 60.0).scalar("vector(1)", 0.0)
            hook = WebhookCarrier({"": server.url}, timeout_seconds=60.0)
            with contextlib.closing(hook):
                assert hook.carry(PARCEL)["webhook"].text.startswith("302")


def test_nothing_of_a_secret_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    odd = answers(b"", b"HTTP/1.1 200 OK\r\nno header at all\r\n: y\r\n")
    with caplog.at_level(logging.WARNING):
        left(lambda: odd, lambda url: ask_webhook(f"{url}/SECRET"))
    assert "SECRET" not in caplog.text


HOSTILE: dict[str, bytes] = {
    "lists": b'{"status":"success","data":[' + b"[]," * 400_000 + b"[]]}",
    "mappings": b'{"status":"success","data":[' + b"{}," * 400_000 + b"{}]}",
    "texts": b'{"status":"success","data":[' + b'"ab",' * 400_000 + b'""]}',
    "numbers": b'{"status":"success","data":[' + b"1," * 600_000 + b"1]}",
    "series": b'{"status":"success","data":[' + b'{"metric":{}},' * 250_001 + b"]}",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_an_answer_is_made_of_is_counted_before_it_is_read(name: str) -> None:
    with FakePrometheus(lambda _: Reply(HOSTILE[name])).running() as fake:
        client = of_prometheus(fake.url, 30.0, room=MemoryBudget(20 * 1024 * 1024))
        with pytest.raises(TooMuchError, match="time series"):
            client.range("up", GRID)


def test_answers_share_their_room_and_wait_for_one_another() -> None:
    series = [({"a": str(n)}, 1) for n in range(2000)]
    with FakePrometheus(lambda _: vector(*series)).running() as fake:
        client = of_prometheus(fake.url, 60.0, room=MemoryBudget(2_600_000))  # of one such answer at a time
        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(lambda _: client.instant("up", 0.0).answer.values.sum(), range(24)))
    assert told == [2000.0] * 24


def test_a_matrix_is_no_larger_than_what_was_told() -> None:
    grid = Grid(60.0, 60.0 * 10_000, 60.0)
    one = b'{"metric":{"a":"%d"},"values":[[60,"1"]]}'
    body = _MATRIX % b",".join(one % n for n in range(500))
    with FakePrometheus(lambda _: Reply(body)).running() as fake, pytest.raises(TooMuchError, match="500 time series"):
        of_prometheus(fake.url, 30.0).range("up", grid)


@pytest.mark.parametrize(
    "value", ['"0x1"', '" 1"', '"1_000"', '"١"', "1", "true", "null", "[]", '""', '"infinity"', '"1,1"']
)
def test_what_go_writes_as_no_number_is_none(value: str) -> None:
    body = _MATRIX % b'{"metric":{},"values":[[3600,%s]]}' % value.encode()
    with (
        FakePrometheus(lambda _: Reply(body)).running() as fake,
        pytest.raises(AnswerError, match="not numbers"),
    ):
        of_prometheus(fake.url, 30.0).range("up", GRID)


def test_what_is_not_finite_is_missing_and_extremes_are_numbers() -> None:
    values = ["NaN", "+Inf", "-Inf", "1" * 400, "1e400", "1e308", "-5e-324", "-1", "0"]
    with FakePrometheus(
        lambda _: vector(*(({"a": str(n)}, value) for n, value in enumerate(values)))
    ).running() as fake:
        told = of_prometheus(fake.url, 30.0).instant("up", 0.0).answer.values[:, 0]
    assert np.isnan(told[:5]).all() and told[5:].tolist() == [1e308, -5e-324, -1.0, 0.0]


def test_a_series_with_a_label_of_megabytes_is_left_out_and_no_other() -> None:
    series = [({"a": "x" * 10_000_000}, 1), ({"a": "b"}, 2), ({"a": "c", "other": "y" * 5000}, 3)]
    with FakePrometheus(lambda _: vector(*series)).running() as fake:
        client = of_prometheus(fake.url, 30.0)
        kept, every = client.instant("up", 0.0, ("a",)), client.instant("up", 0.0)
    assert kept.answer.labels == ({"a": "b"}, {"a": "c"}) and kept.left_out == 1
    assert every.answer.labels == ({"a": "b"},) and every.left_out == 2


def test_names_of_labels_are_harmless_too() -> None:
    with FakePrometheus(lambda _: vector(({"a\x1b[31m": "b\x07"}, 1))).running() as fake:
        assert of_prometheus(fake.url, 30.0).instant("up", 0.0).answer.labels == ({"a[31m": "b"},)


def test_a_measure_of_far_more_series_than_were_counted_is_left_out_and_the_others_are_read() -> None:
    def told(request: Request) -> Reply:
        day = round(float(request.params["start"]))
        count = 160 if request.query == "many" else 2
        return matrix(request, *(({"a": f"{n}-{day if count > 2 else 0}"}, n) for n in range(count)))

    log = plan.Log()
    asks = [plan.Ask(name, name, ("a",)) for name in ("few", "many", "more")]
    with FakePrometheus(told).running() as fake:
        runner = plan.Runner(of_prometheus(fake.url, 30.0), Cache(None, ""), log, 4, 0.0, series_anyway=100)
        answers = [answer for _, answer in runner.matrices(asks, Window(0.0, 5 * 86400.0), 3600.0, 2)]
    assert [len(answer.labels) for answer in answers] == [2, 0, 2]
    assert [note for note in log.notes if note.text.startswith("No data for many")] and len(log.notes) == 1
    assert answers[0].values.tolist() == [[0.0] * 120, [1.0] * 120]


_PEAK = """
import re, sys
from pathlib import Path
from skuwise.advisor.telemetry.prometheus.client.response import Grid
from skuwise.advisor.telemetry.prometheus import reader  # all that a run has loaded
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.rules.base.errors import SkuwiseError
from concurrent.futures import ThreadPoolExecutor

client = Client(sys.argv[1], PrometheusSettings(timeout_seconds=60), {})

def ask(_):
    try:
        told = client.range("up", Grid(3600.0, 3 * 3600.0, 3600.0)).answer
        return f"{len(told.labels)} series"
    except SkuwiseError as error:
        return str(error)

with ThreadPoolExecutor(4) as pool:
    said = set(pool.map(ask, range(4)))
# Of this program alone: ru_maxrss begins with what the one that started it has.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(int(peak[1]) * 1024, *said, sep="\\n")
"""
LARGE: dict[str, Callable[[], bytes]] = {
    "lists": lambda: b"[" + b"[]," * 42_000_000 + b"[]]",
    "mappings": lambda: b"[" + b'{"a":1},' * 15_000_000 + b"{}]",
    "numbers": lambda: b"[" + b"1.5," * 31_000_000 + b"1]",
    "few enough lists": lambda: b"[" + b"[]," * 3_500_000 + b"[]]",
    "one text": lambda: b'["' + b"x" * 126_000_000 + b'"]',
    "one wide text": lambda: b'["' + b"x" * 90_000_000 + '😀"]'.encode(),
    "a million series": lambda: _MATRIX % (b'{"metric":{"a":"b"},"values":[]},' * 1_000_000)[:-1],
    "a pair without an end": lambda: _MATRIX % (b'{"metric":{},"values":[%s]}' % (b'[3600,"1"],' * 4_000_000)[:-1]),
    "honest": lambda: _MATRIX % b",".join(
        b'{"metric":{"UUID":"GPU-%d","Hostname":"node"},"values":[[3600,"0.5"],[7200,"0.25"]]}' % n
        for n in range(100_000)
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_four_large_answers_at_once_stay_below_a_gigabyte(name: str, packed: bool) -> None:
    body = LARGE[name]()
    head = OK
    if packed:
        body, head = gzip.compress(body, 1), OK + b"Content-Encoding: gzip\r\n"
    with HostileServer(lambda: answers(body, head)).running() as server:
        done = subprocess.run(
            [sys.executable, "-c", _PEAK, server.url], check=False, capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 0, done.stderr
    peak, *said = done.stdout.splitlines()
    sys.stdout.write(f"{name}: {int(peak) / 1e6:.0f} MB, {said}\n")
    assert int(peak) < 1e9
    if name == "honest":
        assert said == ["100000 series"]
    else:
        assert len(said) == 1 and said[0].startswith(("Answer too large", "Invalid answer", "The server returned")), (
            said
        )
