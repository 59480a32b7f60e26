"""Training of other kinds than the large dense one: on one GPU, starved, between islands, in small kernels."""

from __future__ import annotations

import numpy as np
from skuwise.advisor.demo.seeded_rng import log_uniform
from skuwise.advisor.demo.training import Training, draw


def on_one_gpu(rng: np.random.Generator, start: float) -> Training:
    """A model that fits one GPU: no collective, steps of a second or so, checkpoints of some GB on the local disk."""
    return draw(
        rng,
        start,
        step_seconds=log_uniform(rng, 0.4, 8),
        input_share=rng.uniform(0.01, 0.08),
        exposed_share=0.0,
        compute_level=rng.uniform(0.66, 0.9),
        memory_level=rng.uniform(0.25, 0.48),
        nvlink_exposed=0.0,
        nvlink_hidden=0.0,
        checkpoint_interval_seconds=rng.uniform(1800, 7200),
        checkpoint_seconds=rng.uniform(4, 25),
        checkpoint_bytes=log_uniform(rng, 1e9, 3e10),
        checkpoint_over_network=False,
        mem_share=rng.uniform(0.35, 0.84),
        cpu=rng.uniform(0.3, 0.8),
        warmup_seconds=rng.uniform(20, 120),
    )


def starved(rng: np.random.Generator, start: float) -> Training:
    """Days of training whose loaders do not keep up: either storage is slow (IO wait) or decoding takes all cores."""
    by_cores = rng.random() < 0.5
    return draw(
        rng,
        start,
        step_seconds=log_uniform(rng, 1.5, 12),
        input_share=rng.uniform(0.5, 0.72),
        exposed_share=rng.uniform(0.02, 0.06),
        update_share=rng.uniform(0.01, 0.03),
        nvlink_exposed=rng.uniform(0.2, 0.6),
        nvlink_hidden=rng.uniform(0.0, 0.05),
        input_io_wait=rng.uniform(0.01, 0.05) if by_cores else rng.uniform(0.18, 0.4),
        cpu=rng.uniform(0.86, 0.97) if by_cores else rng.uniform(0.08, 0.35),
        dataset_bytes_per_second=log_uniform(rng, 2e8, 3e9),
    )


def over_ethernet(rng: np.random.Generator, start: float, *, over_pcie: float) -> Training:
    """Data-parallel training over a network that is too slow for it, on PCIe nodes: the ring also crosses the bus, at
    the network's pace (`over_pcie`: share of the bus's line rate while it waits)."""
    return draw(
        rng,
        start,
        step_seconds=log_uniform(rng, 2, 20),
        exposed_share=rng.uniform(0.55, 0.74),
        fabric_exposed=rng.uniform(0.8, 0.96),
        fabric_hidden=rng.uniform(0.02, 0.15),
        pcie_exposed=over_pcie,
        nvlink_exposed=0.0,
        nvlink_hidden=0.0,
        waiting_sm=rng.uniform(0.05, 0.3),
    )


def between_gpus(rng: np.random.Generator, start: float) -> Training:
    """Tensor- or expert-parallel training within a node: all-reduces and all-to-alls over NVLink that nothing hides."""
    return draw(
        rng,
        start,
        step_seconds=log_uniform(rng, 2.5, 20),
        exposed_share=rng.uniform(0.53, 0.68),
        nvlink_exposed=rng.uniform(0.86, 1.0),
        nvlink_hidden=rng.uniform(0.02, 0.12),
        waiting_sm=rng.uniform(0.15, 0.6),
        memory_level=rng.uniform(0.2, 0.4),
    )


def small_kernels(rng: np.random.Generator, start: float) -> Training:
    """A small model in eager mode: kernels of some microseconds, launched one by one by a core that is never done."""
    return draw(
        rng,
        start,
        step_seconds=log_uniform(rng, 0.05, 0.6),
        input_share=rng.uniform(0.01, 0.06),
        exposed_share=0.0,
        update_share=rng.uniform(0.03, 0.1),  # an optimizer of a thousand small kernels
        compute_level=rng.uniform(0.04, 0.22),
        memory_level=rng.uniform(0.06, 0.25),
        sm_level=rng.uniform(0.14, 0.42),
        occupancy_level=rng.uniform(0.06, 0.18),
        engine_level=rng.uniform(0.74, 0.96),
        nvlink_exposed=0.0,
        nvlink_hidden=0.0,
        checkpoint_seconds=rng.uniform(1, 6),
        checkpoint_bytes=log_uniform(rng, 5e7, 2e9),
        checkpoint_over_network=False,
        mem_share=rng.uniform(0.06, 0.4),
        cpu=rng.uniform(0.25, 0.5),
        dataset_bytes_per_second=log_uniform(rng, 1e6, 5e7),
        warmup_seconds=rng.uniform(15, 60),
    )


def with_heavy_checkpoints(rng: np.random.Generator, start: float) -> Training:
    """Synchronous checkpoints of 0.5-2 TB every half hour to hour: minutes in which the GPUs stand still."""
    exposed = rng.uniform(0.02, 0.06)
    return draw(
        rng,
        start,
        exposed_share=exposed,
        fabric_exposed=rng.uniform(0.7, 0.9),
        fabric_hidden=rng.uniform(0.05, 0.2),
        checkpoint_interval_seconds=rng.uniform(1800, 3600),
        checkpoint_seconds=rng.uniform(150, 360),
        checkpoint_bytes=log_uniform(rng, 2.5e11, 1e12),
        checkpoint_over_network=True,
    )
