"""GPUs and machines as a Prometheus server knows them: names, sizes, powers at rest, DMI texts, networks.

Rests on: NVIDIA's data sheets (memory, bandwidth, links, power limits); what nvidia-smi and dcgm-exporter print as
model names and memory; powers at rest with a CUDA context: arXiv 2605.23918 (H100 71.8 to 121.7 W, A100 53.7 to 80.0,
L40S 35.6 to 102.1) and ollama issue 8591 (V100 27 to 40), the smaller ones taken as alike in share; clouds' DMI texts
as cloud-init's ds-identify looks for them; EC2's network driver gives no speed (amzn-drivers issue 289) and virtual
interfaces without one read -125000 in node_exporter (its issue 1967); providers' pages for instance types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GpuModel:
    """One GPU model. Powers in watts, clocks in MHz, links in bytes per second one way."""

    sku: str
    name: str
    memory_mib: int
    reserved_mib: int
    rest_watts: tuple[float, float]
    context_watts: tuple[float, float]
    limit_watts: float
    sm_mhz: tuple[int, int]
    memory_mhz: tuple[int, int]
    pcie_bytes_per_second: float
    nvlink_bytes_per_second: float = 0.0
    slices: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """MIG profile: share of the compute in sevenths, memory in MiB."""


_PCIE = {3: 15.75e9, 4: 31.5e9, 5: 63.0e9}
_A100_80_SLICES = {"1g.10gb": (1, 9728), "2g.20gb": (2, 19968), "3g.40gb": (3, 40192), "7g.80gb": (7, 81050)}
_A100_40_SLICES = {"1g.5gb": (1, 4864), "2g.10gb": (2, 9856), "3g.20gb": (3, 19968), "7g.40gb": (7, 40192)}
_H100_SLICES = {"1g.10gb": (1, 9984), "2g.20gb": (2, 20096), "3g.40gb": (3, 40448), "7g.80gb": (7, 81008)}

H100 = GpuModel(
    "H100-SXM5", "NVIDIA H100 80GB HBM3", 81559, 551, (62, 71), (72, 121), 700, (345, 1980), (2619, 2619),
    _PCIE[5], 450e9, _H100_SLICES,
)  # fmt: skip
A100_80 = GpuModel(
    "A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 81920, 633, (44, 53), (54, 80), 400, (210, 1410), (1593, 1593),
    _PCIE[4], 300e9, _A100_80_SLICES,
)  # fmt: skip
A100_40 = GpuModel(
    "A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", 40960, 571, (42, 52), (54, 78), 400, (210, 1410), (1215, 1215),
    _PCIE[4], 300e9, _A100_40_SLICES,
)  # fmt: skip
L40S = GpuModel("L40S", "NVIDIA L40S", 46068, 593, (24, 34), (36, 102), 350, (210, 2520), (405, 9001), _PCIE[4])
A10G = GpuModel("A10G", "NVIDIA A10G", 23028, 512, (9, 20), (46, 64), 300, (210, 1710), (405, 6251), _PCIE[4])
L4 = GpuModel("L4", "NVIDIA L4", 23034, 566, (11, 16), (22, 33), 72, (210, 2040), (405, 6251), _PCIE[4])
T4 = GpuModel("T4", "Tesla T4", 15360, 442, (9, 12), (24, 32), 70, (300, 1590), (405, 5001), _PCIE[3])
V100 = GpuModel(
    "V100-SXM2-16GB", "Tesla V100-SXM2-16GB", 16384, 224, (22, 26), (27, 40), 300, (135, 1530), (877, 877),
    _PCIE[3], 150e9,
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """A node type. `fabric` is "infiniband" or "ethernet": where traffic between nodes is counted."""

    sku: str
    provider: str
    gpu: GpuModel
    gpus: int
    vcpus: int
    memory_gib: int
    dmi: Mapping[str, str]
    fabric: str
    fabric_ports: int
    port_bytes_per_second: float
    ethernet: tuple[str, ...]
    ethernet_bytes_per_second: float
    ethernet_speed: str = "told"
    """How node_network_speed_bytes reads: "told", "absent" (EC2) or "unknown" (-125000)."""
    region: str = ""
    provider_id: str = ""


def _ec2(product: str) -> dict[str, str]:
    return {
        "bios_vendor": "Amazon EC2", "board_asset_tag": "i-0a1b2c3d4e5f60718", "board_vendor": "Amazon EC2",
        "chassis_asset_tag": "Amazon EC2", "chassis_vendor": "Amazon EC2", "product_name": product,
        "system_vendor": "Amazon EC2",
    }  # fmt: skip


_AZURE = {
    "bios_vendor": "Microsoft Corporation", "board_name": "Virtual Machine", "board_vendor": "Microsoft Corporation",
    "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77", "chassis_vendor": "Microsoft Corporation",
    "product_name": "Virtual Machine", "system_vendor": "Microsoft Corporation",
}  # fmt: skip
_GOOGLE = {
    "bios_vendor": "Google", "board_name": "Google Compute Engine", "board_vendor": "Google",
    "chassis_vendor": "Google", "product_name": "Google Compute Engine", "system_vendor": "Google",
}  # fmt: skip
_QEMU = {"bios_vendor": "SeaBIOS", "product_name": "Standard PC (Q35 + ICH9, 2009)", "system_vendor": "QEMU"}


def _own(vendor: str, product: str) -> dict[str, str]:
    return {
        "bios_vendor": "American Megatrends International, LLC.", "board_vendor": vendor, "chassis_vendor": vendor,
        "product_name": product, "system_vendor": vendor,
    }  # fmt: skip


_G = 1e9 / 8
_AWS_ID, _AZURE_ID = "aws:///us-east-1a/i-0{host}", "azure:///subscriptions/0000/resourceGroups/gpu/{host}"
_GCE_ID = "gce://research/us-central1-a/{host}"

P5 = Machine(
    "p5.48xlarge", "aws", H100, 8, 192, 2048, _ec2("p5.48xlarge"), "ethernet", 1, 100 * _G,
    ("ens33",), 100 * _G, "absent", "us-east-1", _AWS_ID,
)  # fmt: skip
G5 = Machine(
    "g5.48xlarge", "aws", A10G, 8, 192, 768, _ec2("g5.48xlarge"), "ethernet", 1, 100 * _G,
    ("ens5",), 100 * _G, "absent", "us-east-1", _AWS_ID,
)  # fmt: skip
G6 = Machine(
    "g6.12xlarge", "aws", L4, 4, 48, 192, _ec2("g6.12xlarge"), "ethernet", 1, 40 * _G,
    ("ens5",), 40 * _G, "absent", "us-east-1", _AWS_ID,
)  # fmt: skip
G4DN = Machine(
    "g4dn.12xlarge", "aws", T4, 4, 48, 192, _ec2("g4dn.12xlarge"), "ethernet", 1, 50 * _G,
    ("ens5",), 50 * _G, "absent", "us-east-1", _AWS_ID,
)  # fmt: skip
P3 = Machine(
    "p3.8xlarge", "aws", V100, 4, 32, 244, {**_ec2("p3.8xlarge"), "system_vendor": "Xen", "product_name": "HVM domU"},
    "ethernet", 1, 10 * _G, ("eth0",), 10 * _G, "absent", "us-east-1", _AWS_ID,
)  # fmt: skip
P4DE = Machine(
    "p4de.24xlarge", "aws", A100_80, 8, 96, 1152, _ec2("p4de.24xlarge"), "ethernet", 1, 100 * _G,
    ("ens32",), 100 * _G, "absent", "us-east-1", _AWS_ID,
)  # fmt: skip
ND_H100 = Machine(
    "Standard_ND96isr_H100_v5", "azure", H100, 8, 96, 1900, _AZURE, "infiniband", 8, 400 * _G,
    ("eth0",), 80 * _G, "told", "eastus", _AZURE_ID,
)  # fmt: skip
ND_H100_ETHERNET = Machine(
    "Standard_ND96is_H100_v5", "azure", H100, 8, 96, 1900, _AZURE, "ethernet", 1, 80 * _G,
    ("eth0",), 80 * _G, "told", "eastus", _AZURE_ID,
)  # fmt: skip
ND_A100 = Machine(
    "Standard_ND96amsr_A100_v4", "azure", A100_80, 8, 96, 1900, _AZURE, "infiniband", 8, 200 * _G,
    ("eth0",), 24 * _G, "told", "eastus", _AZURE_ID,
)  # fmt: skip
A2 = Machine(
    "a2-highgpu-8g", "gcp", A100_40, 8, 96, 680, _GOOGLE, "ethernet", 1, 100 * _G,
    ("ens4",), 100 * _G, "unknown", "us-central1", _GCE_ID,
)  # fmt: skip
G2 = Machine(
    "g2-standard-48", "gcp", L4, 4, 48, 192, _GOOGLE, "ethernet", 1, 50 * _G,
    ("ens4",), 50 * _G, "unknown", "us-central1", _GCE_ID,
)  # fmt: skip
LAMBDA_H100 = Machine(
    "gpu_8x_h100_sxm5", "lambda", H100, 8, 208, 1800, _QEMU, "ethernet", 1, 100 * _G, ("eno1",), 100 * _G,
)  # fmt: skip
DGX_H100 = Machine(
    "DGX H100", "bare-metal", H100, 8, 224, 2048, _own("NVIDIA", "DGXH100"), "infiniband", 8, 400 * _G,
    ("ens6f0",), 100 * _G,
)  # fmt: skip
DGX_A100 = Machine(
    "DGX A100 640GB", "bare-metal", A100_80, 8, 256, 2048, _own("NVIDIA", "DGXA100 920-23687-2530-000"), "infiniband",
    8, 200 * _G, ("enp226s0",), 10 * _G,
)  # fmt: skip
XE9680 = Machine(
    "HGX H100 8-GPU (Dell XE9680)", "bare-metal", H100, 8, 208, 2048, _own("Dell Inc.", "PowerEdge XE9680"),
    "infiniband", 8, 400 * _G, ("eno12399np0",), 25 * _G,
)  # fmt: skip
SUPERMICRO_L40S = Machine(
    "8x L40S PCIe 4U", "bare-metal", L40S, 8, 128, 1024, _own("Supermicro", "SYS-421GE-TNRT"), "ethernet", 2, 100 * _G,
    ("ens1f0np0", "ens1f1np1"), 100 * _G,
)  # fmt: skip
SUPERMICRO_A100 = Machine(
    "HGX A100 8-GPU (Supermicro)", "bare-metal", A100_80, 8, 128, 1024, _own("Supermicro", "SYS-420GP-TNAR"),
    "ethernet", 2, 100 * _G, ("ens1f0np0", "ens1f1np1"), 100 * _G,
)  # fmt: skip
