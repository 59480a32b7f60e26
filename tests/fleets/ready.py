"""Fleets that stand ready: four small ones, the founding case alone, and forty nodes of everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import hardware as hw
from .blocks import (
    SGLANG,
    TRITON,
    Part,
    compose,
    dark,
    founding,
    idle,
    instances,
    office,
    serving,
    shared,
    training,
    workshop,
)  # fmt: skip
from .description import Fleet, Observed

PLAIN = Observed()
EXPORTED = Observed(pods="exported")
LABELED = Observed(node_labels=True)
MORE = Observed(more_prof=True, node_labels=True)
DEV_ONLY = Observed(prof=False)
SLURM = Observed(kube=False, pods="none", hpc_job=True)
NO_LABELS = Observed(kube=False, pods="none")
MIXED = ("1111111", "33", "2221", "3211", "223", "33", "1111111", "2221")
"""33 instances on eight GPUs."""


def everything(days: float = 4.0, interval_s: float = 120.0) -> Fleet:
    return compose(
        "everything",
        training("ib", "train_network", hw.ND_H100, 2, observed=LABELED),
        training("eth", "train_network", hw.SUPERMICRO_A100, 2, observed=EXPORTED),
        founding("founding-01", observed=MORE),
        office("office-01", hw.LAMBDA_H100),
        workshop("workshop-01", hw.XE9680, EXPORTED),
        instances("mig-01", hw.P4DE, ("", "", *MIXED[2:]), busy=12, held=4, whole="decode", observed=LABELED),
        shared("shared-01"),
        dark("dark-01"),
        training("stuck", "train_compute", hw.DGX_H100, observed=Observed(stuck_prof=tuple((g, 2.0) for g in range(8)))),
        serving("light-01", "light", hw.G5, replicas=6, image=TRITON, observed=EXPORTED),
        days=days, interval_s=interval_s,
    )  # fmt: skip


def mig(days: float = 4.0, interval_s: float = 120.0) -> Fleet:
    """The first node has 19 busy pods on instances."""
    return compose(
        "mig",
        instances("mig-a100-01", hw.P4DE, MIXED, busy=19, held=5, observed=MORE),
        instances("mig-h100-01", hw.DGX_H100, ("", "", "33", "2221", "3211", "1111111", "223", "33"), busy=10, held=4,
                  whole="decode", observed=Observed(mig_util="zero", mig_parent=True)),
        instances("mig-a100-02", hw.A2, ("33", "33", "2221", "223", "7", "7", "2221", "33"), busy=9, held=6,
                  observed=EXPORTED, later=((6, "1111111", 3.0), (7, "2221", 3.0))),
        instances("mig-h100-02", hw.P5, ("33", "33", "33", "33", "", "", "", ""), busy=0, held=5, whole="train_compute",
                  observed=Observed(more_prof=True)),
        instances("mig-slurm-01", hw.SUPERMICRO_A100, ("33",) * 8, busy=9, held=3, observed=SLURM, job=41007),
        training("plain-01", "train_nvlink", hw.XE9680),
        days=days, interval_s=interval_s,
    )  # fmt: skip


def dev_only(days: float = 4.0, interval_s: float = 120.0) -> Fleet:
    """No profiling fields anywhere, but on one node, where they get stuck at 0."""
    return compose(
        "dev_only",
        training("dgx", "train_network", hw.DGX_A100, 2, observed=DEV_ONLY),
        serving("t4-01", "light", hw.G4DN, observed=DEV_ONLY, image=TRITON),
        training("v100", "train_launch", hw.P3, observed=DEV_ONLY),
        serving("l40s-01", "decode", hw.SUPERMICRO_L40S, observed=DEV_ONLY),
        office("a10g-01", hw.G5, DEV_ONLY),
        training("stuck", "train_compute", hw.DGX_H100,
                 observed=Observed(stuck_prof=tuple((g, 1.5) for g in range(4)))),
        idle("idle-01", hw.G2, DEV_ONLY),
        days=days, interval_s=interval_s,
    )  # fmt: skip


def bare_metal(days: float = 4.0, interval_s: float = 120.0) -> Fleet:
    """No Kubernetes: Slurm's job ids on some nodes, no workload label at all on the others."""
    return compose(
        "bare_metal",
        training("dgx", "train_network", hw.DGX_H100, 2, observed=SLURM, job="31415"),
        training("eth", "train_network", hw.SUPERMICRO_L40S, 2, observed=SLURM, job="31416"),
        training("nvl", "train_nvlink", hw.XE9680, observed=SLURM, job="31420", end_day=2.5),
        founding("serve-01", hw.XE9680, NO_LABELS),
        training("pcie", "train_pcie", hw.SUPERMICRO_L40S, observed=NO_LABELS),
        office("desk-01", hw.DGX_A100, NO_LABELS),
        idle("spare-01", hw.DGX_A100, NO_LABELS),
        days=days, interval_s=interval_s,
    )  # fmt: skip


def founding_alone(days: float = 4.0, interval_s: float = 120.0) -> Fleet:
    """The founding case behind exporters alone: one serving node, one training node of the same kind."""
    return compose(
        "founding", founding("gpu-01", observed=LABELED), training("gpu-train", "train_compute", hw.ND_H100, 2,
                                                                    observed=LABELED),
        days=days, interval_s=interval_s,
    )  # fmt: skip


def forty(days: float = 4.0, interval_s: float = 300.0) -> Fleet:
    """Forty nodes; six of them are bare metal without any workload label."""
    parts: tuple[Part, ...] = (
        training("az-net", "train_network", hw.ND_H100, 3, observed=LABELED),
        training("az-compute", "train_compute", hw.ND_H100, 2, observed=MORE),
        training("az-eth", "train_network", hw.ND_H100_ETHERNET, 2, observed=PLAIN),
        training("az-hbm", "train_hbm", hw.ND_A100, observed=EXPORTED),
        founding("az-serve-01", hw.ND_H100, LABELED),
        founding("az-serve-02", hw.ND_A100, PLAIN),
        training("aws-compute", "train_compute", hw.P5, observed=EXPORTED),
        instances("aws-mig-01", hw.P4DE, MIXED, busy=19, held=5, observed=MORE),
        instances("aws-mig-02", hw.P4DE, ("", "", *MIXED[2:]), busy=8, held=4, whole="prefill",
                  observed=Observed(mig_util="zero")),
        serving("aws-light-01", "light", hw.G5, image=TRITON, observed=LABELED),
        serving("aws-light-02", "light", hw.G6, image=TRITON, observed=Observed(hostname="pod")),
        serving("aws-light-03", "light", hw.G4DN, image=TRITON, observed=DEV_ONLY),
        shared("aws-shared-01", hw.G6),
        dark("aws-dark-01"),
        training("aws-v100", "train_launch", hw.P3, observed=EXPORTED),
        serving("gcp-decode-01", "decode", hw.A2, 2, observed=LABELED, image=SGLANG),
        instances("gcp-mig-01", hw.A2, ("33", "33", "2221", "223", "7", "7", "2221", "33"), busy=9, held=6,
                  observed=EXPORTED, later=((6, "1111111", 3.0), (7, "2221", 3.0))),
        serving("gcp-light-01", "light", hw.G2, image=TRITON),
        idle("gcp-idle-01", hw.G2),
        office("lambda-01", hw.LAMBDA_H100),
        workshop("lambda-02", hw.LAMBDA_H100, EXPORTED),
        training("own-nvl", "train_nvlink", hw.XE9680, observed=Observed(nvlink="cumulative")),
        training("own-pcie", "train_pcie", hw.SUPERMICRO_L40S),
        serving("own-prefill-01", "prefill", hw.SUPERMICRO_L40S),
        serving("own-batch-01", "batch_decode", hw.SUPERMICRO_L40S, image=SGLANG),
        training("own-stuck", "train_compute", hw.DGX_H100, observed=Observed(stuck_prof=tuple((g, 2.0) for g in range(8)))),
        training("own-dev", "train_compute", hw.DGX_A100, observed=DEV_ONLY),
        training("slurm-ib", "train_network", hw.DGX_H100, 2, observed=SLURM, job="52001"),
        training("slurm-input", "train_input", hw.DGX_A100, observed=SLURM, job="52002"),
        training("bare-eth", "train_network", hw.SUPERMICRO_A100, 2, observed=NO_LABELS),
        founding("bare-serve-01", hw.XE9680, NO_LABELS),
        serving("bare-light-01", "light", hw.SUPERMICRO_L40S, observed=NO_LABELS),
        office("bare-desk-01", hw.DGX_A100, NO_LABELS),
        idle("bare-idle-01", hw.DGX_H100, NO_LABELS),
    )  # fmt: skip
    return compose("forty", *parts, days=days, interval_s=interval_s)


FLEETS: Mapping[str, Callable[..., Fleet]] = {
    "everything": everything, "mig": mig, "dev_only": dev_only, "bare_metal": bare_metal, "founding": founding_alone,
    "forty": forty,
}  # fmt: skip
