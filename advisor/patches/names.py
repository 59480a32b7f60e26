"""Names from outside that go into a patch: a name that its target does not take is refused, never mended."""

from __future__ import annotations

import re

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/: RFC 1123 label and subdomain.
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
# Names of partitions and features: what a directive needs no quotes for.
_SLURM_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_MIG_PROFILE = re.compile(r"[1-7]g\.[0-9]{1,3}gb(?:\+me(?:\.all)?)?")
_SUBDOMAIN_MAX = 253


def object_name(name: str, what: str = "name") -> str:
    """The name of a Kubernetes object. Raises UsageError."""
    return _checked(_DNS_SUBDOMAIN, name, f"Kubernetes {what}", "lower-case letters, digits, '-' and '.'")


def namespace_name(name: str) -> str:
    """Raises UsageError."""
    return _checked(_DNS_LABEL, name, "Kubernetes namespace", "lower-case letters, digits and '-'")


def object_kind(kind: str) -> str:
    """Raises UsageError."""
    return _checked(_KIND, kind, "Kubernetes kind", "letters and digits, as in Deployment")


def label_of(key: str, value: str) -> tuple[str, str]:
    """A label of a node. Raises UsageError."""
    prefix, slash, name = key.rpartition("/")
    fits = (
        (not slash or (_DNS_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= _SUBDOMAIN_MAX))
        and _LABEL_NAME.fullmatch(name)
        and (not value or _LABEL_NAME.fullmatch(value))
    )
    if not fits:
        raise UsageError(
            f"Invalid node label {quoted(f'{key}={value}')}.", "Use KEY=VALUE as in 'kubectl get nodes --show-labels'."
        )
    return key, value


def slurm_name(name: str, what: str) -> str:
    """The name of a Slurm partition or feature. Raises UsageError."""
    return _checked(_SLURM_NAME, name, f"Slurm {what}", "letters, digits, '_', '-' and '.'")


def mig_profile(text: str) -> str:
    """A MIG profile as drivers write it, ``1g.10gb``. Raises UsageError."""
    return _checked(_MIG_PROFILE, text, "MIG profile", "a profile of 'nvidia-smi mig -lgip', as in 1g.10gb")


def file_slug(text: str) -> str:
    """A name for a file from any text; empty: nothing of it can stand there."""
    return re.sub(r"[^a-z0-9]+", "-", clean(text).lower()).strip("-")[:60].strip("-")


def _checked(form: re.Pattern[str], name: str, what: str, takes: str) -> str:
    if not form.fullmatch(name) or len(name) > _SUBDOMAIN_MAX:
        raise UsageError(f"{quoted(name)} is not a valid {what}.", f"Use {takes}.")
    return name
