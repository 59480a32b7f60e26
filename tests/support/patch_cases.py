"""What tests of patches share: accepted recommendations of every action, and sample manifests to apply them to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from skuwise.advisor.core.advice_types import Configuration, SavingsBaseline
from skuwise.advisor.ledger.entries import LedgerEntry, LedgerEvent
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.patches.build import patch_for
from skuwise.advisor.patches.change import GivenFile, Patch, Target
from skuwise.advisor.recommend.progress import Measure, WorkloadAddress
from skuwise.tests.support.ledger_builders import ground, proposal
from skuwise.tests.support.moves_builders import IB, PLAIN, catalog

NOW = 1_790_000_000.0
ID = "r-0123456789ab"
H100 = Configuration("H100-SXM5", IB, 16)
SERVICE = WorkloadAddress("kubernetes", "chat", "llm", "Deployment", account="nlp", container="server", replicas=2)

# Action -> what its prediction rests on, beside the common part.
GROUNDS = {
    "move-sku": {"target": Configuration("H100-SXM5", PLAIN, 16)},
    "swap-placement": {
        "target": Configuration("H100-SXM5", PLAIN, 16), "yardstick": SavingsBaseline(partner="pretrain"),
    },
    "reduce-gpus": {"target": replace(H100, gpu_count=8)},
    "mig-slice": {
        "source": replace(H100, gpu_count=2), "target": replace(H100, gpu_count=1), "nodes": ("n1",),
        "yardstick": SavingsBaseline(mig_profile="1g.10gb"),
    },
    "release": {"target": Configuration(None, None, 0)},
    "consolidate": {
        "series_id": None, "address": None, "nodes": (), "target": replace(H100, gpu_count=8),
        "yardstick": SavingsBaseline(nodes=("n1", "n2"), freed=("n2",)),
    },
    "schedule-off": {},
    "rest-clocks": {"yardstick": SavingsBaseline(rest_watts=70.0)},
    "lower-clock": {
        "yardstick": SavingsBaseline(clock_share=0.8), "before": Measure(16.0, 11_680.0, clock_ratio=1.0),
    },
    "power-cap": {},
    "fix-first": {},
}  # fmt: skip


def accepted(action: str, about: str = "chat", text: str = "What was measured.", **changes) -> LedgerEntry:
    """A recommendation as the ledger has it after it was accepted. `changes`: of its ground."""
    told = ground(**{"target": H100, "address": SERVICE, **GROUNDS[action], **changes})
    made = proposal(ID, action=action, about=about, text=text, ground=told)
    events = (LedgerEvent("proposed", NOW - 60, "skuwise"), LedgerEvent("accepted", NOW, "ann"))
    return LedgerEntry(made, NOW - 60, NOW, events)


def patch_of(
    action: str, target: Target, *manifest: tuple[str, str], entry: LedgerEntry | None = None, **typed
) -> Patch:
    """A patch as the command makes it. `manifest`: name and text; `typed`: what is asked on the command line."""
    for name, text in manifest:
        typed["manifest"] = GivenFile(Path("/srv") / name, text.encode("utf-8", "surrogatepass"))
    return patch_for(entry or accepted(action), target, catalog(), typed)


def kept_in(path: Path, *entries: LedgerEntry) -> None:
    """A ledger with these recommendations."""
    for entry in entries:
        Ledger(path).propose((entry.proposal,), NOW - 60)
        for event in entry.events[1:]:
            Ledger(path).add(entry.proposal.id, event)


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
  namespace: llm
  labels: {app: chat}
spec:
  replicas: REPLICAS
  selector:
    matchLabels: {app: chat}
  template:
    metadata:
      labels: {app: chat}
    spec:
      nodeSelector:
        node.kubernetes.io/instance-type: Standard_ND96isr_H100_v5
      containers:
        - name: proxy
          image: envoyproxy/envoy:v1.31
        - name: server
          image: vllm/vllm-openai:v0.9.0
          env:
            - {name: MODEL, value: "70b"}
            - {name: OLD, value: "on"}
          resources:
            limits: {nvidia.com/gpu: GPUS, memory: 64Gi}
            requests: {nvidia.com/gpu: "GPUS", cpu: "1e1"}
"""

STATEFUL_SET = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: chat, namespace: llm, annotations: {team: nlp}}
spec:
  replicas: REPLICAS
  serviceName: chat
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: node.kubernetes.io/instance-type, operator: In, values: [Standard_ND96isr_H100_v5]}
                  - {key: zone, operator: NotIn, values: ["2"]}
      containers:
        - name: server
          image: vllm/vllm-openai:v0.9.0
          resources: {limits: {nvidia.com/gpu: GPUS}}
"""

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: chat, namespace: llm}
spec:
  parallelism: REPLICAS
  completions: REPLICAS
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: embed
          image: example.org/embed:1
          resources: {limits: {nvidia.com/gpu: GPUS}}
"""

# A custom resource: the API server has no strategic merge patch for it.
PYTORCH_JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: chat, namespace: llm}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: REPLICAS
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: example.org/train:1
              resources: {limits: {nvidia.com/gpu: GPUS}}
"""

CLUSTER_QUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: gpus}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu, nvidia.com/gpu]
      flavors:
        - name: h100-ib
          resources:
            - {name: cpu, nominalQuota: "960"}
            - {name: nvidia.com/gpu, nominalQuota: 32}
        - name: h100
          resources:
            - {name: cpu, nominalQuota: "96"}
            - {name: nvidia.com/gpu, nominalQuota: 8}
"""

BATCH_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=chat
#SBATCH -p train --nodes=2
#SBATCH --gres=gpu:h100:8   # whole nodes
# a comment

srun python serve.py
#SBATCH --gres=gpu:1
"""

ONE_GPU_SCRIPT = "#!/bin/bash\n#SBATCH --partition=train\n#SBATCH --gres=gpu:1\nsrun python serve.py"


def sized(manifest: str, replicas: int, gpus: int) -> str:
    return manifest.replace("REPLICAS", str(replicas)).replace("GPUS", str(gpus))


def sample(manifest: str, action: str) -> str:
    """A manifest with as many replicas and GPUs each as an action starts from."""
    return sized(manifest, 2, 1 if action == "mig-slice" else 8)


# The type of patch that the API server takes for each.
SAMPLES = {DEPLOYMENT: "strategic", STATEFUL_SET: "strategic", JOB: "strategic", PYTORCH_JOB: "merge"}
KUBERNETES_ACTIONS = ("move-sku", "swap-placement", "reduce-gpus", "mig-slice", "rest-clocks", "release")
