"""Rules are read once a theme, and say what Textual's own stylesheet makes of them."""

from __future__ import annotations

from typing import TypeVar

from skuwise.tui.app_pages import KeptStylesheet
from textual.css.stylesheet import Stylesheet

CSS = (("Static { color: $primary; }", "one"), ("Static.-wide { width: $wide; }", "two"))

Sheet = TypeVar("Sheet", bound=Stylesheet)


def filled(sheet: Sheet) -> Sheet:
    for css, name in CSS:
        sheet.add_source(css, (name, ""))
    sheet.reparse()
    return sheet


def look(primary: str) -> dict[str, str]:
    return {"primary": primary, "wide": "3"}


def test_another_theme_and_the_first_again_are_what_textual_reads() -> None:
    kept, own = filled(KeptStylesheet(variables=look("red"))), filled(Stylesheet(variables=look("red")))
    first = kept.rules
    for primary in ("red", "blue", "red"):
        kept.set_variables(look(primary))
        own.set_variables(look(primary))
        kept.reparse()
        own.reparse()
        assert kept.css == own.css
    assert kept.rules is first


def test_a_source_that_is_added_is_read_in_every_theme() -> None:
    kept = filled(KeptStylesheet(variables=look("red")))
    assert len(list(kept.read_ahead(look("blue")))) == len(CSS)
    assert list(kept.read_ahead(look("blue"))) == []
    kept.add_source("Input { color: $primary; }", ("three", ""))
    kept.reparse()
    assert "Input" in kept.css
    kept.set_variables(look("blue"))
    kept.reparse()
    own = filled(Stylesheet(variables=look("blue")))
    own.add_source("Input { color: $primary; }", ("three", ""))
    own.reparse()
    assert kept.css == own.css
