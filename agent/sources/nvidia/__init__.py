"""NVML: GPUs, GPM, NVLink, MIG, events."""
