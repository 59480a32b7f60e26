"""The nodes of a job, as sacct's NodeList names them: ``gpu-[001-004,007],login1``."""

from __future__ import annotations

import re
from functools import lru_cache

from ..inventory.identity.hostlist import expand

# No cluster has more nodes; a list of more is refused before it is written out.
MAX_NODES = 65_536
_LIST = re.compile(r"[A-Za-z0-9._\-\[\],]{1,4096}", re.ASCII)


# Written out, a list of the largest cluster takes megabytes: only short ones are kept, and few others.
_SHORT = 512


def expanded(node_list: str) -> frozenset[str] | None:
    """The nodes of a list; None for what is none, or names more than `MAX_NODES`."""
    short = _short(node_list)
    return short if short is not None else _long(node_list)


@lru_cache(maxsize=4096)
def _short(node_list: str) -> frozenset[str] | None:
    return _expanded(node_list, _SHORT)


@lru_cache(maxsize=16)
def _long(node_list: str) -> frozenset[str] | None:
    return _expanded(node_list, MAX_NODES)


def _expanded(node_list: str, limit: int) -> frozenset[str] | None:
    if not _LIST.fullmatch(node_list):
        return None
    found = expand(node_list, limit)
    return frozenset(found) if found and all(found) else None
