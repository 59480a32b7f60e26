"""How simulated telemetry is told from real: by the UUIDs of its GPUs."""

from __future__ import annotations

from hashlib import sha256


def gpu_uuid(node: str, index: int) -> str:
    """The UUID of a simulated GPU. It follows from where the GPU is, so that simulated telemetry can be recognized."""
    digest = simulated_hex("gpu", node, str(index))
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def simulated_hex(*parts: str) -> str:
    """64 hexadecimal digits that `parts` alone decide."""
    return sha256("\0".join(parts).encode()).hexdigest()
