"""What XID errors mean, in a few words.

From NVIDIA's XID catalog (https://docs.nvidia.com/deploy/xid-errors/, tables of XID errors, seen in 2025). Only those
whose meaning that page states in plain words; any other number is kept as a number.
"""

from __future__ import annotations

from collections.abc import Mapping

XID_MEANINGS: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "invalid or corrupted push buffer stream",
    38: "driver firmware error",
    43: "GPU stopped processing",
    45: "preemptive cleanup, due to previous errors",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping recorded",
    64: "ECC page retirement or row remapping could not be recorded",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "GSP RPC timeout",
    120: "GSP error",
}
