"""How simulated telemetry is told from real: by the UUIDs of its GPUs."""

from __future__ import annotations

from hashlib import sha256


def fleet_mark(*parts: object) -> str:
    """Eight hexadecimal digits that tell one simulated fleet from others: two of them have no GPU in common, and so no
    ledger either. `parts`: what decides the fleet."""
    return simulated_hex("fleet", *map(str, parts))[:8]


def gpu_uuid(mark: str, node: str, index: int) -> str:
    """The UUID of a simulated GPU. It begins with the fleet's mark and follows from where the GPU is, so that simulated
    telemetry can be recognized."""
    digest = simulated_hex("gpu", mark, node, str(index))
    return f"GPU-{mark}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def is_simulated(uuid: str, node: str, index: int) -> bool:
    """Whether the simulator made this GPU; no driver makes such a UUID."""
    return uuid == gpu_uuid(uuid[4:12], node, index)


def simulated_hex(*parts: str) -> str:
    """64 hexadecimal digits that `parts` alone decide."""
    return sha256("\0".join(parts).encode()).hexdigest()
