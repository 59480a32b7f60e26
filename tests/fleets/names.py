"""Names that Kubernetes generates, and ids that stay the same for the same parts."""

from __future__ import annotations

import hashlib
import uuid

GENERATED = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of generated parts (k8s.io/apimachinery, util/rand): no vowels, no 0, 1 and 3."""


def generated(length: int, *parts: object) -> str:
    """A generated part of a Kubernetes name, the same for the same parts."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return "".join(GENERATED[byte % len(GENERATED)] for byte in digest[:length])


def unique(*parts: object) -> str:
    """A UUID, the same for the same parts."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(map(str, parts))))
