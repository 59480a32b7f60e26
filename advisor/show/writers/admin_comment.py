"""A card as Slurm's AdminComment, beside what jobstats writes there.

jobstats keeps ``JS1:`` and base64 of gzipped JSON, decodes all that follows the prefix, and reads the field from
``sacct --parsable2``, where ``|`` ends it (PrincetonUniversity/jobstats, jobstats.py, read in November 2026). So a card
follows behind, in letters that are plain for a shell, sacct and CSV, and behind ``AA==``: base64 that ends there, in
one zero byte, which gzip takes for padding. Python's decoder reads nothing beyond it.
"""

import base64
import gzip
import re
import zlib

from ....rules.base.errors import UsageError
from ...core.card_types import Card

PREFIX = "SKW1:"
# Slurm's database keeps 64 KiB (a column of type text); messages and shells take less kindly to long ones.
MOST_BYTES = 16384
_CARD = re.compile(rf"(?:;AA==)?;?{PREFIX}[A-Za-z0-9.,=:_-]*")
_SHARES, _SHARE_MIN = 2, 0.005


def compact(card: Card) -> str:
    """``SKW1:w=1f2e3d4c,gpus=8,h=17.9,idle=3.1,sm=42,tc=12,mem=76,kind=training,bn=host-input:62,next=host-input``.

    h, idle: GPU-hours; sm, tc, mem: percent (SM activity, tensor activity, peak of memory); kwh; usd. What is missing
    is left out.
    """
    use, judged = card.use, card.judged
    peak, total = use.mem_peak_bytes, use.mem_total_bytes
    shares = sorted(judged.time_shares.items(), key=lambda share: -share[1])
    limits = [f"{_word(label)}:{share * 100:.0f}" for label, share in shares if share >= _SHARE_MIN][:_SHARES]
    memory = peak / total if peak is not None and total else None
    percents = {"sm": use.sm_active, "tc": use.tensor_active, "mem": memory}
    parts = {
        "w": _word(card.id.removeprefix("w-")),
        "gpus": f"{card.gpu_count}",
        "h": _number(card.gpu_hours),
        "idle": _number(use.idle_gpu_hours),
        **{name: "" if value is None else f"{value * 100:.0f}" for name, value in percents.items()},
        "kind": _word(judged.kind),
        "bn": ":".join(limits),
        "kwh": _number(card.kwh),
        "usd": _number(card.cost_usd),
        "next": _word(card.next_step.code.removeprefix("card-")),
    }
    return PREFIX + ",".join(f"{key}={value}" for key, value in parts.items() if value)


def admin_comment(card: Card, existing: str = "") -> str:
    """The comment with the card in it; what somebody else wrote stays, an older card is replaced.

    Raises UsageError where that would be too long for Slurm, or would keep jobstats from reading its part.
    """
    kept, remedy = _CARD.sub("", existing.strip("\n\r\t ")), "It was left as it is."
    if existing.startswith(PREFIX):
        kept = kept.lstrip(";")
    if "\n" in kept or "\r" in kept or "\0" in kept:
        raise UsageError("The job's AdminComment spans several lines.", remedy)
    is_jobstats = kept.startswith("JS1:")
    if is_jobstats:
        try:
            has_data = bool(gzip.decompress(base64.b64decode(kept.removeprefix("JS1:").encode("ascii"))))
        except (ValueError, OSError, EOFError, zlib.error):
            has_data = False
        if not has_data:  # by their length jobstats distinguishes its notes from data
            raise UsageError("The job's AdminComment is a note of jobstats that nothing may follow.", remedy)
    comment = f"{kept}{';AA==;' if is_jobstats else ';' if kept else ''}{compact(card)}"
    if len(comment.encode("utf-8", "surrogateescape")) > MOST_BYTES:
        raise UsageError(f"The job's AdminComment would exceed {MOST_BYTES:,} bytes.", remedy)
    return comment


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:64]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if value >= 0.001 or value == 0 else "0"
