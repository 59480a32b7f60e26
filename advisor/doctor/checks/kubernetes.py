"""Of how many pods on GPUs kube-state-metrics tells the owner, at the end of the window."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...telemetry.prometheus.client.response import Labels
from ...telemetry.prometheus.owners.kube import PODS_A_QUERY
from ...telemetry.prometheus.promql.promql import AGENT_SERIES, selector
from .. import remedies
from ..facts import PodCoverage
from ..presence import PODS, carriers
from ..sampled_moments import Asker
from ..types import TelemetryGap

_POD = ("exported_namespace", "namespace", "exported_pod", "pod")
_PLAIN = re.compile(r"[a-z0-9.-]{1,253}")
# Any one of them tells whose a pod is; without the others Deployments and CronJobs are read from names.
OWNER_SERIES = ("kube_pod_owner", "kube_pod_info")
CHAIN_SERIES = ("kube_replicaset_owner", "kube_job_owner", "kube_pod_container_info")
SERIES = (*OWNER_SERIES, *CHAIN_SERIES)


def pods_told(asker: Asker, known: set[str], end: float, span: str) -> PodCoverage | None:
    """None: no series of a GPU names a pod."""
    held: set[tuple[str, str]] = set()
    by = ", ".join(_POD)
    series = [(name, labels) for name in carriers(known)[:1] for labels in PODS]
    series += [(AGENT_SERIES, ('scheduler="kubernetes"',))] if AGENT_SERIES in known else []
    for name, labels in series:
        chosen = selector(asker.matches, *labels)
        held |= _pods(asker.instant(f"count by ({by}) (last_over_time({name}{chosen}[{span}]))", end, _POD).labels)
    if not held:
        return None
    owned: set[tuple[str, str]] = set()
    plain = sorted({pod for _, pod in held if _PLAIN.fullmatch(pod)})
    for name in (one for one in OWNER_SERIES if one in known):
        for first in range(0, len(plain), PODS_A_QUERY):
            pattern = "|".join(pod.replace(".", "[.]") for pod in plain[first : first + PODS_A_QUERY])
            for label in ("pod", "exported_pod"):
                chosen = selector(asker.matches, f'{label}=~"{pattern}"')
                query = f"count by ({by}) (last_over_time({name}{chosen}[{span}]))"
                owned |= _pods(asker.instant(query, end, _POD).labels)
        if held <= owned:
            break
    return PodCoverage(len(held), len(held & owned), tuple(name for name in SERIES if name not in known))


def owner_gaps(told: PodCoverage | None) -> Iterator[TelemetryGap]:
    """What is lost where pods have no owner, or their owners none."""
    if told is None:
        return
    without = told.on_gpus - told.owned
    if without:
        yield TelemetryGap(
            "pod-owners-unknown",
            f"No owner from kube-state-metrics for {without} of {told.on_gpus} pods on GPUs.",
            "Their work is named after its pods. Pods that train together count as several workloads; "
            "owner, image and start are unknown.",
            remedies.KUBE_FILE, remedies.KUBE_SERIES,
        )  # fmt: skip
    elif told.missing:
        yield TelemetryGap(
            "pod-owners-unknown",
            f"Metrics missing from kube-state-metrics: {', '.join(told.missing)}.",
            "Deployments and CronJobs are derived from the names of their ReplicaSets and Jobs. Without "
            "kube_pod_container_info, images are unknown.",
            remedies.KUBE_FILE, remedies.KUBE_SERIES,
        )  # fmt: skip


def _pods(series: Iterable[Labels]) -> set[tuple[str, str]]:
    return {(_label(one, "namespace"), pod) for one in series if (pod := _label(one, "pod"))}


def _label(labels: Labels, name: str) -> str:
    return labels.get(f"exported_{name}") or labels.get(name, "")
