"""What GPM answers to whoever runs this: prints one line of JSON. Needs nvidia-ml-py and nothing else.

Run as different users it settles who may read GPM (root may name a user id to become); with its spacings, how close two
samples may lie. It asks the first GPU.
"""
# ruff: noqa: T201

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any

import pynvml

SPACINGS = (0.02, 0.05, 0.08, 0.1, 0.12, 0.2, 1.0)
_DOCUMENTED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 21, 60, 61)  # nvml.h, nvmlGpmMetricId_t
_COST_CALLS = 32


def _code(error: pynvml.NVMLError) -> int:
    return int(getattr(error, "value", -1))


def _metrics(first: Any, second: Any, ids: tuple[int, ...]) -> dict[int, float | int | None]:
    """id -> value; None where it is NaN; a negative number is the error code."""
    request: Any = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(ids)
    request.sample1, request.sample2 = first, second
    for place, number in enumerate(ids):
        request.metrics[place].metricId = number
    pynvml.nvmlGpmMetricsGet(request)
    found: dict[int, float | int | None] = {}
    for place, number in enumerate(ids):
        metric = request.metrics[place]
        found[number] = -int(metric.nvmlReturn) if metric.nvmlReturn else _finite(metric.value)
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def probe() -> dict[str, object]:
    """Everything, or how far it came: `stage` and `code` name the call that was refused."""
    result: dict[str, object] = {"uid": os.getuid(), "stage": "nvmlInit", "code": 0}
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        result["stage"] = "nvmlGpmQueryDeviceSupport"
        result["supported"] = bool(pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        result["stage"] = "nvmlGpmSampleGet"
        first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        pynvml.nvmlGpmSampleGet(handle, first)
        time.sleep(0.2)
        pynvml.nvmlGpmSampleGet(handle, second)
        result["stage"] = "nvmlGpmMetricsGet"
        result["metrics"] = {str(k): v for k, v in _metrics(first, second, _DOCUMENTED).items()}
        result["spacings"] = {str(gap): _spacing(handle, first, second, gap) for gap in SPACINGS}
        result["sample_get_seconds"] = _sample_cost(handle, first)
        result["stage"] = "done"
        pynvml.nvmlGpmSampleFree(first)
        pynvml.nvmlGpmSampleFree(second)
    except pynvml.NVMLError as error:
        result["code"], result["message"] = _code(error), str(error)
    return result


def _spacing(handle: Any, first: Any, second: Any, gap: float) -> dict[str, object]:
    """Whether two samples `gap` seconds apart give SM_UTIL (id 2)."""
    pynvml.nvmlGpmSampleGet(handle, first)
    time.sleep(gap)
    pynvml.nvmlGpmSampleGet(handle, second)
    try:
        value = _metrics(first, second, (2,))[2]
    except pynvml.NVMLError as error:
        return {"code": _code(error)}
    return {"code": -int(value)} if value is not None and value < 0 else {"code": 0, "nan": value is None}


def _sample_cost(handle: Any, sample: Any) -> dict[str, float]:
    times: list[float] = []
    for _ in range(_COST_CALLS):
        began = time.perf_counter()
        pynvml.nvmlGpmSampleGet(handle, sample)
        times.append(time.perf_counter() - began)
    times.sort()
    return {"median": times[len(times) // 2], "worst": times[-1]}


def become(uid: int) -> None:
    """Give up root for good, before the driver is opened: its capabilities go with it. Python is already loaded, so it
    need not be readable for that user."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        become(int(sys.argv[1]))
    print(json.dumps(probe()))
