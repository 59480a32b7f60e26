"""What Kubernetes' API says, from files that ``kubectl get ... -o json`` wrote: the agent itself asks no API server.

``[kubernetes] pods_file`` tells owners, UIDs, images and labels of pods, ``resource_slices_file`` the devices behind
the names that dynamic resource allocation (DRA) gives. A file is read by a child process when it has changed; until the
child is done, and where it fails, what was known before holds.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from ..base.safe_text import clean_text
from ..base.self_command import child_command
from ..model import Absence, Workload
from .dra import SliceDevice
from .pods import Objects, Pod, PodOwner, PodWork, team_of_pod, works_of

_PATIENCE_SECONDS = 60.0
_ANSWER_LIMIT = 32 * 1024 * 1024
_MODULE = "skuwise.agent.jobs.kubernetes_child"


@dataclass(frozen=True, slots=True)
class PodFact:
    """A pod as the file tells it. `team`: by the labels that the site named."""

    pod: Pod
    work: PodWork
    team: str | None

    def describe(self, workload: Workload) -> Workload:
        """The pod's workload with what the API server says of it. Of a gang each node names the pod that it has."""
        work, pod = self.work, self.pod
        return replace(
            workload, workload_id=work.workload_id, series_id=work.series_id, name=work.name, namespace=pod.namespace,
            pod=pod.name, controller_kind=work.kind, image=pod.image, team=self.team,
        )  # fmt: skip


@dataclass(frozen=True)
class KubernetesFacts:
    """`by_uid`, `by_name`: pods; a name has several where one that ended is still listed: the newest. `slices`: devices
    by ``POOL/NAME``."""

    by_uid: Mapping[str, PodFact] = field(default_factory=dict)
    by_name: Mapping[tuple[str, str], PodFact] = field(default_factory=dict)
    slices: Mapping[str, SliceDevice] = field(default_factory=dict)
    absences: frozenset[Absence] = frozenset()


class KubernetesFiles:
    """Looks at the files at each scan; never waits. None: there is no such file. `command` gives the child's command
    for its arguments. `close` ends what runs."""

    def __init__(
        self,
        cluster: str,
        node: str,
        pods_file: Path | None,
        resource_slices_file: Path | None,
        team_labels: Sequence[str] = (),
        *,
        command: Callable[..., Sequence[str]] = child_command,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._team_labels = cluster, tuple(team_labels)

        def watched(what: str, path: Path | None, *labels: str) -> _Watched | None:
            return _Watched(path, command(_MODULE, what, str(path), node, *labels), monotonic) if path else None

        self._pods = watched("pods", pods_file, *team_labels)
        self._slices = watched("slices", resource_slices_file)
        self._facts = KubernetesFacts()

    def read(self) -> KubernetesFacts:
        """What is known now."""
        facts = self._facts
        if self._pods is not None and (answer := self._pods.look()) is not None:
            facts = self._with_pods(facts, answer)
        if self._slices is not None and (answer := self._slices.look()) is not None:
            facts = replace(facts, slices=_devices(answer))
        absences = frozenset(
            Absence("source", "allocation", "kubernetes", "kubernetes-file", f"{own.path} is not used: {own.fault}.",
                    f"Write it with kubectl get {what} -o json, as a new file that is then renamed.")
            for own, what in ((self._pods, "pods,replicasets,jobs -A"), (self._slices, "resourceslices"))
            if own is not None and own.fault is not None
        )  # fmt: skip
        if absences != facts.absences:
            facts = replace(facts, absences=absences)
        self._facts = facts
        return facts

    def close(self) -> None:
        for own in (self._pods, self._slices):
            if own is not None:
                own.close()

    def _with_pods(self, facts: KubernetesFacts, answer: Mapping[str, Any]) -> KubernetesFacts:
        pods, objects = _objects(answer)
        works = works_of(self._cluster, pods, objects)
        by_uid: dict[str, PodFact] = {}
        by_name: dict[tuple[str, str], PodFact] = {}
        for pod, work in sorted(zip(pods, works, strict=True), key=lambda one: one[0].created_seconds or 0.0):
            fact = PodFact(pod, work, team_of_pod(pod, objects, self._team_labels))
            by_name[pod.namespace, pod.name] = fact
            if pod.uid:
                by_uid[pod.uid] = fact
        return replace(facts, by_uid=by_uid, by_name=by_name)


class _Watched:
    """A file, and the child that reads it when it has changed. `fault`: why what it says now is not used."""

    def __init__(self, path: Path, command: Sequence[str], monotonic: Callable[[], float]) -> None:
        self.path = path
        self.fault: str | None = None
        self._command, self._monotonic = command, monotonic
        self._seen: tuple[int, ...] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._answer: IO[bytes] | None = None
        self._until = 0.0

    def look(self) -> Mapping[str, Any] | None:
        """A new answer, if one has come."""
        found = self._finished() if self._child is not None else None
        if self._child is None:
            self._start_if_changed()
        return found

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def _start_if_changed(self) -> None:
        try:
            about = self.path.stat()
        except OSError as error:
            self.fault, self._seen = f"it cannot be read ({error.strerror})", None
            return
        seen = (about.st_mtime_ns, about.st_size, about.st_ino)
        if seen == self._seen:
            return
        try:
            self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the child is done
            self._child = subprocess.Popen(  # noqa: S603 - our own command
                self._command, stdin=subprocess.DEVNULL, stdout=self._answer, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self.fault = f"the child process that reads it cannot be started ({error.strerror})"
            self.close()
            return
        self._seen, self._until = seen, self._monotonic() + _PATIENCE_SECONDS

    def _finished(self) -> Mapping[str, Any] | None:
        child, file = self._child, self._answer
        if child is None or file is None:
            return None
        if child.poll() is None:
            if self._monotonic() > self._until:
                self.fault = "reading it takes too long"
                self.close()
            return None
        file.seek(0)
        raw = file.read(_ANSWER_LIMIT + 1)
        self.close()
        try:
            answer = json.loads(raw) if len(raw) <= _ANSWER_LIMIT else {"error": "it names too many objects"}
        except ValueError:
            answer = {"error": "the child process that reads it ended"}
        if not isinstance(answer, dict) or "error" in answer:
            self.fault = clean_text(str(answer.get("error"))) if isinstance(answer, dict) else "no answer"
            return None
        self.fault = None
        return answer


def _objects(answer: Mapping[str, Any]) -> tuple[list[Pod], Objects]:
    """The child's own words: of known shape, and cleaned."""
    pods = [
        Pod(**{**row, "owner": row["owner"] and PodOwner(*row["owner"]), "containers": frozenset(row["containers"])})
        for row in answer["pods"]
    ]
    owners = {(kind, space, name): owner and PodOwner(*owner) for kind, space, name, owner in answer["owners"]}
    parallelism = {(space, job): count for space, job, count in answer["parallelism"]}
    return pods, Objects(owners, parallelism, answer["namespaces"])


def _devices(answer: Mapping[str, Any]) -> dict[str, SliceDevice]:
    return {f"{one.pop('pool')}/{one.pop('name')}": SliceDevice(**one) for one in answer["devices"]}
