"""Which object of a manifest is the workload of a recommendation."""

from __future__ import annotations

from collections.abc import Sequence

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted
from .pods import pod_groups
from .subject import Subject
from .yaml_documents import Document


def workload_of(documents: Sequence[Document], subject: Subject) -> Document:
    """The object of a manifest that runs the workload: the only one with pods, else the one that is named.

    Raises UsageError where it is not clear, or is another than the ledger's and nobody named it.
    """
    found = [one for one in documents if pod_groups(one)]
    asked, known = subject.asked, subject.address
    named = [
        one
        for one in found
        if one["metadata"].get("name") == (asked.name or known.name)
        and asked.kind in (None, one["kind"])
        and asked.namespace in (None, one["metadata"].get("namespace"))
    ]
    chosen = named or (found if not (asked.name or asked.kind or asked.namespace) else [])
    if len(chosen) != 1:
        names = ", ".join(f"{quoted(str(o['kind']))} {quoted(str(o['metadata'].get('name')))}" for o in found[:5])
        what = "no object with pods" if not found else f"{names}; which one to change is not clear"
        raise UsageError(
            f"The manifest has {what}.",
            "Set --kind, --name or --namespace."
            if found
            else "Export the workload with 'kubectl get KIND NAME -o yaml'.",
        )
    _check_address(chosen[0], subject)
    return chosen[0]


def _check_address(document: Document, subject: Subject) -> None:
    """Raises UsageError for an object that is not the ledger's, unless its name was typed."""
    known, metadata = subject.address, document["metadata"]
    if subject.asked.name is not None or known.scheduler != "kubernetes":
        return
    name, namespace = str(metadata.get("name")), metadata.get("namespace")
    elsewhere = None not in (namespace, known.namespace) and namespace != known.namespace
    if name != known.name or (elsewhere and subject.asked.namespace is None):
        mine, its = (f"{space}/{one}" if space else one for space, one in (
            (known.namespace, known.name), (namespace, name)))  # fmt: skip
        raise UsageError(
            f"The recommendation is for {quoted(mine)}, the manifest for {quoted(its)}.",
            "Use --manifest FILE with the manifest of the workload, or set --name if it is the same.",
        )
