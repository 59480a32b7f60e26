"""Addresses, windows and failures that nobody foresaw: each a sentence."""

from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.agent.base.address import parse_listen
from skuwise.rules.base.errors import UsageError
from skuwise.rules.base.last_resort import explained


@pytest.mark.parametrize(
    "address",
    [
        ":9500", "a b:9500", "..:9500", f"{'a' * 64}:9500", f"{'a.' * 200}a:9500", "\udcff:9500", "a\0b:9500", "x:-1",
        "x:65536", "x:" + "9" * 5000, "x:٣", "[::1%a b]:9500", "[1.2.3.4]:9500", "[host]:9500", "::1:9500",
        "300.1.1.1:9500", "1.2.3.4.5:9500", "", "-a:1", "a..b:1", "a/b:1", "0655350", "65536", "0" * 5000 + "1", "٦٥",
    ],
    ids=ascii,
)  # fmt: skip
def test_what_can_never_be_listened_on_is_wrong_usage(address: str) -> None:
    with pytest.raises(UsageError):
        parse_listen(address)


@pytest.mark.parametrize(
    ("text", "address"),
    [("9500", "127.0.0.1:9500"), ("0.0.0.0:9500",) * 2, ("node-1:0",) * 2, ("[::1]:9500",) * 2],
)
def test_what_can_be_listened_on_is_an_address(text: str, address: str) -> None:
    assert str(parse_listen(text)) == str(parse_listen(address)) == address


def boom() -> None:
    boom()


def missing() -> None:
    Path("/nonexistent/x").read_bytes()


def short() -> None:
    raise MemoryError


def undecodable() -> None:
    b"\xff".decode()


@pytest.mark.parametrize("fail", [boom, missing, short, undecodable], ids=lambda fail: fail.__name__)
def test_what_nobody_foresaw_is_a_sentence_with_a_remedy(fail: Callable[[], None]) -> None:
    with pytest.raises(Exception) as failed:
        fail()
    told = explained(failed.value)
    assert told is not None and told.message.endswith(".") and told.remedy.endswith((".", "?"))


def test_a_mistake_of_ours_is_not_explained_away() -> None:
    assert explained(KeyError("x")) is None and explained(TypeError("x")) is None
    assert explained(SystemError("bad argument to internal function")) is None
    without_reason = explained(SystemError("error return without exception set"))
    assert without_reason is not None and "memory" in without_reason.message
