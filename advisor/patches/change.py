"""What is to be changed: an accepted recommendation, with what was typed over what the ledger knows; and its patch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted
from ...rules.catalog.loader import Catalog
from ..recommend.progress import PredictionSnapshot, WorkloadAddress
from ..state.ledger import LedgerEntry

Target = Literal["kubernetes", "kueue", "slurm"]
INSTANCE_TYPE, GPU_PRODUCT = "node.kubernetes.io/instance-type", "nvidia.com/gpu.product"
# Clouds whose node controller writes the instance type as the catalog names it
# (https://kubernetes.io/docs/reference/labels-annotations-taints/#nodekubernetesioinstance-type).
_CLOUDS = frozenset({"aws", "azure", "gcp", "oci", "digitalocean", "scaleway"})
# Kinds that are patched without their manifest: those of services. `spec.replicas` counts their pods.
_WITHOUT_MANIFEST = ("Deployment", "StatefulSet")
_PLACED = ("move-sku", "swap-placement")
BY_HAND = "Change it by hand."
# The supported SM clocks of NVIDIA's data center GPUs are 15 MHz apart (nvidia-smi -q -d SUPPORTED_CLOCKS).
_CLOCK_STEP = 15  # MHz


@dataclass(frozen=True, slots=True)
class PatchFile:
    """A file to be written: its name, and its text without the head."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Patch:
    """What a recommendation changes in one object or file, and the way back. `apply`, `revert`: command lines for the
    folder of the files; `notes`: what is assumed, and what is left to do."""

    patch: PatchFile
    undo: PatchFile
    apply: str
    revert: str
    notes: tuple[str, ...]


def patch_of_files(name: str, texts: Sequence[str], command: str, notes: Sequence[str]) -> Patch:
    """A change and its undo in two files, which `command` applies."""
    patch, undo = (PatchFile(f"{kind}-{name}", text) for kind, text in zip(("patch", "undo"), texts, strict=True))
    return Patch(patch, undo, f"{command} {patch.name}", f"{command} {undo.name}", tuple(notes))


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file that was named with ``--manifest``, byte by byte."""

    path: Path
    raw: bytes

    @property
    def text(self) -> str:
        """Raises UsageError where it is no text."""
        text = self.raw.decode("utf-8", "replace")
        if "\0" in text or "\ufffd" in text:
            raise UsageError(f"{clean(self.path)} is not UTF-8 text.", "Convert it, or change it by hand.")
        return text


@dataclass(frozen=True, slots=True)
class Change:
    """A recommendation with every value that its patch needs; None or empty: unknown, and not needed.

    `typed`: names of the values that the user gave, which count before those of the ledger. `target`: a node type.
    `kind` to `replicas`: the Kubernetes object of today; `node`: those to cordon, where no workload is changed;
    `labels`: of the target's nodes; `flavor`, `target_flavor`: Kueue's of today and of the target; `mhz`: SM clock.
    """

    id: str
    action: str
    target: str
    gpus_before: int
    gpus_after: int
    changes_gpu: bool
    gpu_resource: str
    typed: frozenset[str] = frozenset()
    manifest: GivenFile | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    container: str | None = None
    replicas: int | None = None
    node: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    label_note: str = ""
    mig_profile: str | None = None
    partner: str | None = None
    partition: str | None = None
    feature: str | None = None
    flavor: str | None = None
    target_flavor: str | None = None
    mhz: int | None = None

    def check_size(self, label: str, gpus: int) -> None:
        """Raises UsageError where a manifest asks for other GPUs than the recommendation starts from."""
        if gpus != self.gpus_before:
            what = f"{label} asks for {gpus} GPUs; the recommendation starts from {self.gpus_before}."
            raise UsageError(what, "Name the manifest of the whole workload as it runs today, or change each by hand.")


def change_of(entry: LedgerEntry, target: Target, catalog: Catalog, command: str, typed: Mapping[str, Any]) -> Change:
    """The change that a patch for `target` makes. `command`: the command line so far; `typed`: option -> value, of
    `Change` and ``node_label`` (None or empty: not typed). Raises UsageError for all that is missing together, with the
    command that adds it, and for a name that its system does not take."""
    r, snapshot = entry.recommendation, entry.snapshot
    assert snapshot is not None
    given, baseline = {name: value for name, value in typed.items() if value}, snapshot.yardstick
    at = snapshot.address
    at = at if at is not None and at.scheduler == "kubernetes" else WorkloadAddress("", "")
    gpu = catalog.gpu(snapshot.source.gpu_sku) if snapshot.source.gpu_sku else None
    of_nodes = r.action == "consolidate" or snapshot.series_id is None
    freed = baseline.freed if r.action == "consolidate" else baseline.nodes or snapshot.nodes
    nodes = tuple(given.get("node", freed)) if of_nodes else ()
    ratio = snapshot.before.clock_ratio if snapshot.before is not None else None
    hertz = (baseline.clock_share or 0) * (ratio or 0) * (gpu.tensor_reference_hertz if gpu else 0)
    labels, note = _labels(snapshot, catalog, given.pop("node_label", ()))
    values = {
        "kind": at.controller_kind, "name": at.name or None, "namespace": at.namespace, "container": at.container,
        "replicas": at.replicas, "mhz": int(hertz / 1e6 // _CLOCK_STEP) * _CLOCK_STEP,
        "mig_profile": baseline.mig_profile, "partner": baseline.partner,
        "target": snapshot.target.node_sku or snapshot.target.gpu_sku or "the target",
        "gpu_resource": "amd.com/gpu" if gpu is not None and gpu.vendor == "AMD" else "nvidia.com/gpu",
        "gpus_before": snapshot.source.gpu_count, "gpus_after": snapshot.target.gpu_count,
        "changes_gpu": snapshot.source.gpu_sku != snapshot.target.gpu_sku, **given, "node": nodes,
    }  # fmt: skip
    change = Change(r.id, r.action, typed=frozenset(given), labels=labels, label_note=note, **values)
    if change.action == "mig-slice" and not change.mig_profile:
        raise UsageError(f"The ledger does not know the MIG profile of {r.id}.", "Run 'skuwise advise' for a new one.")
    missing = [(what, option) for value, what, option in _needed(change, target, of_nodes) if not value]
    if missing:
        what, options = ", ".join(name for name, _ in missing), [option for _, option in missing]
        remedy = f"Run: {' '.join([command, *options])}"
        if target == "kubernetes" and not of_nodes and not any(flag.startswith("--manifest") for flag in options):
            kept = [flag for flag in options if flag.startswith("--node-label")]
            remedy += f" ; or, with an exact undo: {' '.join([command, *kept, '--manifest FILE.yaml'])}"
        raise UsageError(f"The ledger does not know all that {r.id} ({r.action}) needs: {what}.", remedy)
    for what in _FORMS:
        names = getattr(change, what, None) or ()
        for name in (names,) if isinstance(names, str) else names:
            checked(what, name)
    return change


def _labels(snapshot: PredictionSnapshot, catalog: Catalog, typed: tuple[str, ...]) -> tuple[dict[str, str], str]:
    if typed:
        labels = dict(checked("node label", label).split("=", 1) for label in typed)
        return labels, "The node labels are those of --node-label."
    source, target = snapshot.source, snapshot.target
    node = catalog.node(target.node_sku) if target.node_sku else None
    gpu = catalog.gpu(target.gpu_sku) if target.gpu_sku and target.gpu_sku != source.gpu_sku else None
    products = [a.replace(" ", "-") for a in gpu.aliases if a.startswith(("NVIDIA ", "Tesla "))] if gpu else []
    if node is not None and node.provider in _CLOUDS:
        key, value, setter = INSTANCE_TYPE, node.instance_type, node.provider
    elif len(products) == 1:
        key, value, setter = GPU_PRODUCT, products[0], "GPU Feature Discovery"
    else:
        return {}, f" ({GPU_PRODUCT} is {' or '.join(products)})" if products else ""
    return {key: value}, f"{key} is the label that {setter} sets. Check it with 'kubectl get nodes -L {key}'."


def _needed(change: Change, target: Target, of_nodes: bool) -> list[tuple[object, str, str]]:
    action, replicas, kind = change.action, change.replicas or 0, change.kind
    placed, place = action in _PLACED, f"of the nodes of {change.target}"
    resized = action in ("move-sku", "reduce-gpus") and change.gpus_before != change.gpus_after
    # Pods that are not fewer get fewer GPUs each.
    inside = resized and replicas and change.gpus_after * replicas % change.gpus_before
    label = (change.labels or not placed, f"label {place}{change.label_note}", "--node-label KEY=VALUE")
    if target == "kueue":
        flavor = change.target_flavor or action != "move-sku"
        return [
            (change.manifest, "manifest of the ClusterQueue", "--manifest QUEUE.yaml"),
            (flavor, f"Kueue's flavor {place}", "--target-flavor NAME"),
        ]
    if target == "slurm":
        return [
            (change.manifest, "batch script", "--manifest JOB.sh"),
            (change.partition or change.feature or not placed, f"partition or feature {place}", "--partition NAME"),
            (change.mhz or action != "lower-clock", "SM clock in MHz", "--mhz MHZ"),
        ]
    if of_nodes:
        return [(change.node, "nodes to cordon", "--node NAME")]
    if change.manifest is not None:
        return [label]
    if kind and kind not in _WITHOUT_MANIFEST:
        return [(None, f"manifest of the {clean(kind)}", "--manifest FILE.yaml"), label]
    container = change.container or not (inside or action in ("mig-slice", "rest-clocks"))
    return [
        (kind, "kind of the object", "--kind KIND"),
        (change.name, "its name", "--name NAME"),
        (change.namespace, "its namespace", "--namespace NAME"),
        (replicas or not (resized or action == "release"), "its replicas today", "--replicas N"),
        (container, "its container with the GPUs", "--container NAME"),
        label,
    ]


# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/: RFC 1123 label and subdomain, and labels.
_RFC1123 = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_RFC1123}(?:\.{_RFC1123})*"
_LABEL = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_SLURM = (r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", "letters, digits, '_', '-' and '.'")  # what needs no quotes
# A name that its target does not take is refused, never changed.
_FORMS = {
    "kind": (r"[A-Z][A-Za-z0-9]{0,62}", "a kind of Kubernetes, as in Deployment"),
    "name": (_SUBDOMAIN, "lower-case letters, digits, '-' and '.'"),
    "node": (_SUBDOMAIN, "lower-case letters, digits, '-' and '.'"),
    "namespace": (_RFC1123, "lower-case letters, digits and '-'"),
    "container": (_RFC1123, "lower-case letters, digits and '-'"),
    "node label": (rf"(?:{_SUBDOMAIN}/)?{_LABEL}=(?:{_LABEL})?", "KEY=VALUE, as in 'kubectl get nodes --show-labels'"),
    "partition": _SLURM,
    "feature": _SLURM,
    "mig_profile": (r"[1-7]g\.[0-9]{1,3}gb(?:\+me(?:\.all)?)?", "a profile of 'nvidia-smi mig -lgip', as in 1g.10gb"),
}


def checked(what: str, name: str) -> str:
    """The name, where it has this form. Raises UsageError."""
    form, takes = _FORMS[what]
    if not re.fullmatch(form, name) or len(name) > 253:
        raise UsageError(f"{quoted(name)} is not a valid {what.replace('_', ' ')}.", f"Use {takes}.")
    return name


Document = dict[str, Any]

# kubectl reads YAML 1.1 with differences (``1e3`` is a number for it, text for PyYAML; ``10:30`` the other way round):
# what stands plain in a manifest and is no whole number, truth value or null is kept as written, and every other text
# that is not plainly a word is quoted in the output. Some readers take the words of `_NOT_WORDS` for other values.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*[A-Za-z0-9]")
_NOT_WORDS = frozenset({"yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_PLAIN = {"true": True, "false": False, "null": None, "~": None, "": None}
_TEXT = "tag:yaml.org,2002:str"


class _AsWritten(str):
    """A plain scalar whose meaning is left to kubectl."""

    __slots__ = ()


class _Reader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own form


class _Writer(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002
        return True


def _scalar(loader: _Reader, node: yaml.ScalarNode) -> Any:  # noqa: ANN401
    text = str(loader.construct_scalar(node))
    if node.style is not None:
        return text
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else _PLAIN.get(text, _AsWritten(text))


def _text(dumper: _Writer, text: str) -> yaml.ScalarNode:
    is_word = _WORD.fullmatch(text) is not None and text.lower() not in _NOT_WORDS
    return dumper.represent_scalar(_TEXT, text, style=None if is_word else '"')


def _as_written(dumper: _Writer, text: _AsWritten) -> yaml.ScalarNode:
    return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, str(text), (True, False)), str(text))


_Reader.add_constructor(_TEXT, _scalar)
_Writer.add_representer(str, _text)
_Writer.add_representer(_AsWritten, _as_written)


def read_documents(given: GivenFile) -> list[Document]:
    """The objects of a manifest; a ``List`` counts as its items. Raises UsageError for what is no plain YAML."""
    text, name, export = given.text, clean(given.path.name), "Export it with 'kubectl get -o yaml'"
    try:
        # Before anything is built of them: an alias of aliases grows without end.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise UsageError(f"{name} uses YAML aliases.", f"{export}, which has none.")
        loaded = [document for document in yaml.load_all(text, Loader=_Reader) if document is not None]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        where = getattr(getattr(error, "problem_mark", None), "line", None)
        line = f", line {where + 1}" if where is not None else ""
        raise UsageError(f"{name} is not valid YAML{line}.", f"{export}.") from error
    lists = [part["items"] if isinstance(part, dict) and part.get("kind") == "List" else [part] for part in loaded]
    return [document for part in lists for document in part]


def write_document(value: Document) -> str:
    """One document, in ASCII."""
    return yaml.dump(value, Dumper=_Writer, sort_keys=False, allow_unicode=False, width=10_000)
