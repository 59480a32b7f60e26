"""Frames with a part of what they show taken away, as a fleet that shows less would show them."""

import dataclasses
from hashlib import sha256

import numpy as np
from skuwise.advisor.core.column_rows import BinsArray
from skuwise.advisor.core.frame import Frame

# What people, schedulers and clusters say of a workload; who made it and its image are names too.
_SAID = (
    "job_id", "namespace", "pod", "user", "account", "framework", "command", "partition", "qos", "array_job_id",
    "array_task_id", "controller_kind", "image", "team",
)  # fmt: skip


def hidden(frame: Frame) -> Frame:
    """The frame with all that people wrote about their workloads taken away, and the engines' own series."""
    workloads = frame.workloads.copy()
    for column in _SAID:
        if column in workloads:
            workloads[column] = None
    # A name still distinguishes runs of one thing from another, but says nothing.
    workloads["name"] = [sha256(name.encode()).hexdigest()[:10] for name in workloads["name"]]
    workloads["scheduler"] = "process"
    return dataclasses.replace(frame, workloads=workloads, serving=frame.serving.iloc[:0])


def coarse(frame: Frame) -> Frame:
    """The frame as dcgm-exporter's defaults would leave it: 30 s apart, no SM activity, occupancy or NVLink."""
    gpu = frame.gpu.copy()
    lost = ("sm_active", "sm_occupancy", "nvlink", "fp32", "fp64", "period", "tensor_nvlink", "tensor_fabric", "duty",
            "idle_run")  # fmt: skip
    for column in gpu.columns.astype(str):
        if column.startswith(lost):
            gpu[column] = BinsArray.missing(len(gpu)) if column.endswith("_bins") else np.nan
    gpu["gpu_util_n"] = gpu["observed_seconds"] / 30
    return dataclasses.replace(frame, gpu=gpu)
