"""The exact lines that add what a source lacks, and the effect on the advice without them."""

from __future__ import annotations

from collections.abc import Mapping

from ...agent.sources.dcgm import FIELDS

_OF_FIELD = {field.metric: field.csv for field in FIELDS}
DCGM_FILE = "dcgm-exporter's counters CSV (-f, or the Helm value customMetrics)"
# Measure -> lines of dcgm-exporter's CSV of counters.
CSV: Mapping[str, tuple[str, ...]] = {
    "engine_active": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Ratio of time the graphics engine is active.",),
    "sm_active": (_OF_FIELD["sm_active"],),
    "tensor_active": (_OF_FIELD["tensor_active"],),
    "dram_active": (_OF_FIELD["dram_active"],),
    "mem_used": (
        "DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).",
        "DCGM_FI_DEV_FB_FREE, gauge, Framebuffer memory free (in MiB).",
    ),
    "power": ("DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).",),
    "clocks": ("DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).",),
    "nvlink": (_OF_FIELD["nvlink_tx_bytes_per_second"], _OF_FIELD["nvlink_rx_bytes_per_second"]),
    "pcie": (_OF_FIELD["pcie_tx_bytes_per_second"], _OF_FIELD["pcie_rx_bytes_per_second"]),
}
# Beside one of which a tensor pipe at zero is believed.
OTHER_PIPES = (_OF_FIELD["fp32_active"], _OF_FIELD["fp64_active"])
LOSES: Mapping[str, str] = {
    "engine_active": "GPU activity is unknown: idle GPUs are not detected, and workloads get no kind.",
    "sm_active": (
        "Busy GPUs that use few SMs are not detected. Launch-bound work is hard to distinguish from communication."
    ),
    "tensor_active": "Compute-bound work is not detected: no bottleneck verdicts, no recommendation of another GPU.",
    "dram_active": "Memory bandwidth is unknown: recommendations that need it (fewer GPUs, another GPU) are blocked.",
    "mem_used": "Memory use is unknown: no held-idle finding, no recommendation of a smaller GPU or MIG slice.",
    "power": "Faulty telemetry, throttling and energy are not evaluated.",
    "clocks": "Throttled GPUs are not detected, and no lower clock is recommended.",
    "nvlink": "NVLink use is unknown: idle NVLink is not detected, and no node without NVLink is recommended.",
    "pcie": "Work that waits for PCIe is not detected.",
}
ALLOW_LIST = "--metric-labels-allowlist=nodes=[topology.kubernetes.io/region,node.kubernetes.io/instance-type]"
KUBE_FILE = "the scrape configuration of kube-state-metrics (and its --metric-allowlist if set)"
KUBE_SERIES = (
    "metric_relabel_configs: [{source_labels: [__name__], action: keep, regex: "
    "kube_pod_(owner|info|created|start_time|labels|container_info|container_resource_requests|status_phase)"
    "|kube_(replicaset|job|deployment)_owner|kube_job_spec_parallelism|kube_namespace_labels|kube_node_.+}]"
)
NODE_LABELS = 'topology.kubernetes.io/region="REGION"\nnode.kubernetes.io/instance-type="INSTANCE-TYPE"'
INFINIBAND_FLAG = "--collector.infiniband"
ETHERNET_FLAG = "--collector.netdev --collector.netclass"
ALL_NETWORKS = f"{INFINIBAND_FLAG} {ETHERNET_FLAG}"
HOST_FLAG = "--collector.cpu --collector.uname --collector.dmi"
PODS_FLAG = "DCGM_EXPORTER_KUBERNETES=true"
SLURM_FLAG = "--hpc-job-mapping-dir=/run/dcgm-job-mapping"
HOSTNAME_ENV = "NODE_NAME: {valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}"
SCRAPE_LINE = "scrape_interval: 30s"
NODE_EXPORTER = "the flags of node_exporter (in a container also --path.sysfs=/host/sys)"
