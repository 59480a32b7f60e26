"""Names that Kubernetes and its controllers make, read backwards: the last resort where nothing tells who owns a pod.

Random parts use an alphabet without vowels (k8s.io/apimachinery/pkg/util/rand). A ReplicaSet is its Deployment's name
and a hash, a CronJob's Job its name and the minute since 1970 for which it was scheduled.
"""

from __future__ import annotations

import re

_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_POD_OF_REPLICA_SET = re.compile(rf"(.+)-[{_SAFE}]{{6,10}}-[{_SAFE}]{{5}}")
_SUFFIX = re.compile(rf"(.+?)(?:-\d{{1,10}})?-[{_SAFE}]{{5}}")
_ORDINAL = re.compile(r"(.+)-\d{1,5}")
_REPLICA_SET = re.compile(rf"(.+)-[{_SAFE}]{{6,10}}")
# Minutes since 1970 from 2017 to 2034; dates such as 20260101 are none of them.
_CRON_RUN = re.compile(r"(.+)-(?:2[5-9]|3[0-3])\d{6}")
# KubeRay names the cluster of a RayJob or a RayService so.
_RAY_CLUSTER = re.compile(rf"(.+?)(?:-raycluster)?-[{_SAFE}]{{5}}")
# KServe's Deployments: of its own, or of a Knative revision; older releases add -default.
_PREDICTOR = re.compile(r"(.+)-predictor(?:-default)?(?:-\d{5}-deployment)?")


def controller_of(pod: str) -> str:
    """The name of what made the pod, as far as its own name shows: Deployment, Job, DaemonSet or StatefulSet."""
    return _base(pod, _POD_OF_REPLICA_SET, _SUFFIX, _ORDINAL) or pod


def deployment_of(replica_set: str) -> str | None:
    """The Deployment in a ReplicaSet's name; None: it has none in it."""
    return _base(replica_set, _REPLICA_SET)


def cron_job_of(job: str) -> str | None:
    """The CronJob in a Job's name; None: it has none in it."""
    return _base(job, _CRON_RUN)


def ray_name_of(cluster: str) -> str:
    """A RayCluster's name without what KubeRay added to that of a RayJob or a RayService."""
    return _base(cluster, _RAY_CLUSTER) or cluster


def inference_service_of(deployment: str) -> str | None:
    """The InferenceService in the name of KServe's Deployment of a predictor; None: it is named in another way."""
    return _base(deployment, _PREDICTOR)


def is_ordinal_of(name: str, base: str) -> bool:
    """Whether `name` is `base` with a number, as pods of a StatefulSet are named."""
    match = _ORDINAL.fullmatch(name)
    return match is not None and match.group(1) == base


def _base(name: str, *patterns: re.Pattern[str]) -> str | None:
    for pattern in patterns:
        match = pattern.fullmatch(name)
        if match is not None:
            return match.group(1)
    return None
