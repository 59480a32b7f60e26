"""What one minute of a GPU and of a host shows: at work, at rest, free, stuck, or not observed."""

import math

# One minute of a GPU: training, at rest with a context, free, spinning in a collective.
TRAINING = {
    "observed": 1.0, "engine": 0.97, "engine_max": 1.0, "util": 0.97, "sm": 0.8, "tensor": 0.45, "dram": 0.5,
    "power_watts": 620.0, "mem_used_ratio": 0.8, "links_bytes_per_second": 4e10, "sm_clock_hertz": 1.755e9,
    "throttled": 0.0,
}  # fmt: skip
REST = {
    **TRAINING, "engine": 0.0, "engine_max": 0.0, "util": 0.0, "sm": 0.0, "tensor": 0.0, "dram": 0.0,
    "power_watts": 115.0, "links_bytes_per_second": 1e5,
}  # fmt: skip
FREE = {**REST, "power_watts": 70.0, "mem_used_ratio": 0.001}
SPIN = {
    **TRAINING, "engine": 1.0, "util": 1.0, "sm": 0.06, "tensor": 0.0, "dram": 0.01, "power_watts": 180.0,
    "links_bytes_per_second": 1e5,
}  # fmt: skip
MISSING = dict.fromkeys(TRAINING, math.nan)
QUIET_HOST = {
    "cpu_util": 0.03, "disk_bytes_per_second": 2e5, "network_bytes_per_second": 1e5, "fabric_bytes_per_second": 0.0,
    "fabric_line_bytes_per_second": 4e11, "fabric_up": 1.0,
}  # fmt: skip
