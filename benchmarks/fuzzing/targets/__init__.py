"""Every reader that is fuzzed, a line each."""

from __future__ import annotations

from ..target import Target
from .advice import ADVICE
from .answers import ANSWERS
from .cache import CACHE
from .costs import FOCUS
from .databases import DATABASE, FRAMES, READING, WHOLE
from .jobs import JOB_JSON, SACCT
from .kubernetes import KUBELET, KUBERNETES
from .ledgers import LEDGER
from .node_texts import NODE, SLURM
from .outboxes import OUTBOX
from .pages import PAGES
from .recordings import RECORDING
from .rules import CATALOG, YAML
from .settings import TOML

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        DATABASE, READING, WHOLE, FRAMES, LEDGER, OUTBOX, CACHE, ADVICE, ANSWERS, PAGES, TOML, YAML, CATALOG, FOCUS,
        SACCT, JOB_JSON, NODE, SLURM, KUBERNETES, KUBELET, RECORDING,
    )
}  # fmt: skip
