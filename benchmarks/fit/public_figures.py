"""Published figures about real workloads, as examples of their kinds: few, coarse, and each with its source.

Where a publication gives a shape in words ("follows the day"), the number stands for the shape, not for a reading.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """What a publication says of a kind of work, as the features it determines; all others stay missing."""

    kind: str
    source: str
    features: Mapping[str, float]


FIGURES: tuple[Figure, ...] = (
    Figure(
        "training",
        "Grattafiori et al., The Llama 3 Herd of Models, 2024: 16,000 H100 over 400 Gb/s RoCE for 54 days, 38-43 % of "
        "the BF16 peak",
        {"nodes": 2000, "gpus": 16000, "fabric_utilization": 0.1, "chain_hours": 54 * 24, "elapsed_hours": 336,
         "tensor_per_engine": 0.42, "hbm_per_engine": 0.3, "memory_over_compute": 0.6,
         "tensor_of_sustained_busy_p95": 0.45, "idle_share": 0.02, "resolution_seconds": 60},
    ),
    Figure(
        "training",
        "Hu et al., Characterization of Large Language Model Development in the Datacenter (Acme), NSDI 2024: "
        "GPU-Util near 100 % while SM activity is 33 to 50 %, by pretraining on hundreds of GPUs",
        {"nodes": 32, "gpus": 256, "engine_active": 0.98, "sm_active": 0.4, "chain_hours": 14 * 24,
         "elapsed_hours": 336, "resolution_seconds": 15},
    ),
    Figure(
        "online-inference",
        "vLLM documentation, gpu_memory_utilization: the engine takes 0.9 of the memory at start and keeps it",
        {"gpus": 1, "nodes": 1, "mem_flat": 1.0, "mem_level": 0.9, "mem_cv": 0.0},
    ),
    Figure(
        "online-inference",
        "Patel et al., Characterizing Power Management Opportunities for LLMs in the Cloud (POLCA), ASPLOS 2024, and "
        "Patel et al., Splitwise, ISCA 2024: production services follow the day, decode is bound by memory bandwidth",
        {"gpus": 8, "nodes": 1, "diurnal_share": 0.6, "diurnal_amplitude": 0.2, "elapsed_hours": 168,
         "chain_hours": 168, "memory_over_compute": 3.0, "hbm_of_sustained_busy_p95": 0.5, "resolution_seconds": 60},
    ),
)  # fmt: skip
