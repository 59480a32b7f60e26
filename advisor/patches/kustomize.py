"""Kustomizations: an overlay over the given manifest, or a component for an overlay that is there."""

from __future__ import annotations

from collections.abc import Sequence

from .model import PatchFile
from .yaml_documents import write_document

NAME = "kustomization.yaml"


def overlay(resources: Sequence[str], patches: Sequence[str]) -> PatchFile:
    """``kubectl apply -k DIR``: the resources with the patches."""
    value = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": list(resources), "patches": [{"path": one} for one in patches],
    }  # fmt: skip
    return PatchFile(NAME, write_document(value))


def component(patches: Sequence[str]) -> PatchFile:
    """To be named under ``components`` of a kustomization that has the object."""
    value = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component",
        "patches": [{"path": one} for one in patches],
    }  # fmt: skip
    return PatchFile(NAME, write_document(value))
