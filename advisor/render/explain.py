"""``skuwise explain``: everything about one thing as text, with its roofline."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...rules.catalog.loader import Catalog
from ...rules.policy.thresholds import WasteRule
from ..core.advice_types import Advice
from ..views.document.explain_document import explain_sections
from ..views.roofline import Roofline
from ..views.subjects import Subject
from . import roofline
from .text import sections_text


def render_explained(
    advice: Advice,
    subject: Subject,
    drawn: Roofline | None,
    *,
    width: int = 100,
    catalog: Catalog | None = None,
    rules: Mapping[str, WasteRule] = MappingProxyType({}),
) -> str:
    """`drawn`: the roofline of the workload that `subject` is about, None where it is about none."""
    text = sections_text(explain_sections(advice, subject, catalog=catalog, rules=rules), width=width)
    return text if drawn is None else f"{text}\nRoofline\n--------\n{roofline.render_text(drawn)}"
