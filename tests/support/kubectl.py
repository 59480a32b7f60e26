"""The real kubectl, offline: patches applied to files, and kustomizations built."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from skuwise.tests.support.prometheus_engines import needed


def patched(folder: Path, manifest: str, patch: str, kind: str) -> str:
    """A manifest with a patch applied by ``kubectl patch --local``, as YAML."""
    needed("kubectl")
    source, change = folder / "manifest.yaml", folder / "change.yaml"
    source.write_text(manifest)
    change.write_text(patch)
    command = ["kubectl", "patch", "--local", "-f", source, "--type", kind, "--patch-file", change, "-o", "yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plain(manifest: str, folder: Path, kind: str = "merge") -> Any:
    """A manifest as kubectl understands it."""
    return value(patched(folder, manifest, "{}", kind))


def value(text: str) -> Any:
    """A document; no annotations and an empty map of them are one, as the API server stores them."""
    found = yaml.safe_load(text)
    if found.get("metadata", {}).get("annotations") == {}:
        del found["metadata"]["annotations"]
    return found


def kustomized(folder: Path) -> list[Any]:
    """What ``kubectl kustomize`` makes of a folder."""
    needed("kubectl")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def minor_version() -> int:
    """Of kubectl: 32 of 1.32."""
    needed("kubectl")
    told = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    return int(re.sub(r"\D", "", json.loads(told.stdout)["clientVersion"]["minor"]))
