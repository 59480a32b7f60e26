"""Sample manifests and batch scripts, for patches to be applied to."""

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: llm, labels: {app: chat}}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
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
