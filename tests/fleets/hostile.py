"""What a server should not hold and may: owners that own themselves, names that no API server would take, replicas of
kube-state-metrics that contradict each other. Each takes a fleet's series and gives others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from skuwise.tests.server_metrics.prometheus_series import Series

from .generate import by_name

NAMED = (
    "pod", "exported_pod", "owner_name", "created_by_name", "replicaset", "job_name", "label_team",
    "label_app_kubernetes_io_name",
)  # fmt: skip
_MISCHIEF = (
    '{}"} or vector(1) or up{{a="', "{}'; DROP TABLE workload; --", "<script>alert('{}')</script>",
    "{}\x1b[31m\x1b]0;x\x07", "=cmd|'/c calc'!{}", "../../{}/../etc/passwd", "{}\nBcc: all@example.com",
    "{}\u202egpj.exe", "{}|0|1|2", "{}" + "x" * 300, "{}.*|.+", "{}\\", "日本語-{}", "{} ", "%s{}%n",
)  # fmt: skip


_OLD = {"instance": "10.0.0.9:8080"}


def mischievous(found: Iterable[Series], share: float, rng: np.random.Generator) -> list[Series]:
    """A share of the names of pods and of their owners is hostile, never fewer; the same name is the same wherever it
    stands, and no two become one."""
    found = list(found)
    names = sorted({str(one.labels[key]) for one in found for key in NAMED if one.labels.get(key)} - {"<none>"})
    # What begins with a name derives from it: a pod whose owner is hostile need not be.
    some = rng.permutation(len(names))[: math.ceil(share * len(names))]
    chosen = {names[n]: _MISCHIEF[n % len(_MISCHIEF)].replace("{}", names[n]) for n in some}
    return by_name(replace(one, labels=_renamed(one.labels, chosen)) for one in found)


def _renamed(labels: Mapping[str, object], names: Mapping[str, str]) -> dict[str, object]:
    return {key: names.get(str(value), value) if key in NAMED else value for key, value in labels.items()}


def cycles(found: Iterable[Series]) -> list[Series]:
    """Every ReplicaSet belongs to the next one in a ring, every Job to itself."""
    found = list(found)
    sets = sorted({str(one.labels["replicaset"]) for one in found if one.name == "kube_replicaset_owner"})
    after = dict(zip(sets, [*sets[1:], *sets[:1]], strict=True))
    out = []
    for one in found:
        labels = dict(one.labels)
        if one.name == "kube_replicaset_owner":
            own = {"owner_kind": "ReplicaSet", "owner_name": after[str(labels["replicaset"])]}
            labels |= {**own, "owner_is_controller": "true"}
        elif one.name == "kube_job_owner":
            labels |= {"owner_kind": "Job", "owner_name": labels["job_name"], "owner_is_controller": "true"}
        out.append(replace(one, labels=labels))
    return by_name(out)


def contradicting(found: Iterable[Series]) -> list[Series]:
    """Beside each owner of a ReplicaSet another one, from a copy of kube-state-metrics that has an old state."""
    found = list(found)
    lies = [
        replace(one, labels={**one.labels, **_OLD, "owner_name": f"old-{one.labels['owner_name']}"},
                ts=one.ts[:3], values=one.values[:3])
        for one in found
        if one.name == "kube_replicaset_owner"
    ]  # fmt: skip
    return by_name([*found, *lies])
