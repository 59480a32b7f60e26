"""Mail addresses as settings name them: ASCII, one each, nothing that could end a header or a command."""

from __future__ import annotations

import re
from email.headerregistry import Address

from ...rules.base.errors import UsageError

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
# RFC 5321, 4.5.3.1: 64 octets before the @, 254 in all (RFC 3696, erratum 1690). Quoted local parts are not taken.
# What looks like an encoded word (RFC 2047) would be decoded on its way into a header.
_BARE = re.compile(rf"(?=.{{1,254}}$)(?=[^@]{{1,64}}@)(?!.*=\?){_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NAMED = re.compile(r"(?!.*=\?)(?P<name>[^<>\"@,;:\\]{1,100}?) *<(?P<address>[^<>]+)>")


def bare_address(text: object, what: str) -> str:
    """``ann@example.org``. Raises UsageError for anything else, a name beside the address included."""
    if not isinstance(text, str) or not _BARE.fullmatch(text):
        shown = repr(text[:100]) if isinstance(text, str) else "a value that is no text"
        raise UsageError(
            f"{what} holds {shown}, which is no mail address.", "Write ann@example.org; a name in IDNA form (xn--...)."
        )
    return text


def sender_address(text: object, what: str) -> Address:
    """``GPU report <gpus@example.org>``, or the address alone. Raises UsageError."""
    named = _NAMED.fullmatch(text) if isinstance(text, str) and text.isprintable() else None
    address = bare_address(named["address"] if named else text, what)
    return Address(named["name"] if named else "", addr_spec=address)
