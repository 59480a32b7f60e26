"""What the metrics page writes: the text format in both forms, and addresses."""

from __future__ import annotations

import pytest
from skuwise.agent.base.address import Address, parse_listen


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9500", Address("127.0.0.1", 9500)),
        ("0.0.0.0:9500", Address("0.0.0.0", 9500)),
        ("node-1:0", Address("node-1", 0)),
        ("[::1]:9500", Address("::1", 9500)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_listen(text) == address
    assert str(parse_listen(str(address))) == str(address)
