"""``skuwise explain``: everything about one thing as text, with its roofline in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...rules.catalog.loader import Catalog
from ...rules.policy.thresholds import WasteRule
from ..core.advice_types import Advice
from ..views.document.explain_document import explain_sections
from ..views.document.model import Bullets, section
from ..views.roofline import Roofline
from ..views.subjects import Subject
from .roofline import roofline_sentences
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
    told = explain_sections(advice, subject, catalog=catalog, rules=rules)
    roofs = () if drawn is None else (section("Roofline", Bullets(tuple(roofline_sentences(drawn)))),)
    return sections_text((*told, *roofs), width)
