"""Pages in Markdown. Outside text is escaped: pipes, HTML, links, emphasis, headings."""

import re
from collections.abc import Iterator, Sequence

from ....rules.base.sanitize import clean
from ..document import AsideBlock, Block, Bullets, Document, Figures, Link, Section, Table

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$<>&=:@-])")


def escape(text: object) -> str:
    """Text that Markdown prints as it is, on one line. HTML's three characters become entities."""
    plain = _SPECIAL.sub(_escaped, clean(text))
    return re.sub(r"^(\s*\d+)\.", r"\1\\.", plain)


def _escaped(match: re.Match[str]) -> str:
    character = match.group(1)
    # A dash, colon or bracket inside a sentence is harmless and easier to read unescaped.
    if character in "()+:=-" and match.start() > 0:
        return character
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;", "@": "&#64;"}.get(character, f"\\{character}")


def document_markdown(document: Document) -> str:
    """A whole page."""
    lines = [f"# {escape(document.heading or document.title)}", ""]
    for text in filter(None, (document.lead, document.window, document.summary)):
        lines += [escape(text), ""]
    lines += _table(("", "", "", ""), [(t.label, t.value, t.change, t.meaning) for t in document.tiles], (1,))
    for section in document.sections:
        lines += _section(section, 2)
    lines += [line for text in document.footer for line in (escape(text), "")]
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section, level: int) -> Iterator[str]:
    if section.title:
        yield from (f"{'#' * level} {escape(section.title)}", "")
    for block in section.blocks:
        yield from _block(block, level)


def _block(block: Block, level: int) -> Iterator[str]:
    match block:
        case Section():
            yield from _section(block, level + 1)
        case Table():
            yield from _table(block.heads, block.rows, block.right, block.groups)
            if block.more:
                yield from (escape(block.more), "")
        case Figures():
            yield from (*(f"- {escape(name)}: {escape(value)}" for name, value in block.rows), "")
        case Bullets():
            yield from (*(f"- {escape(text)}" for text in block.rows), "")
        case Link():
            yield from (f"{escape(block.text)}: <{block.url}>", "")
        case AsideBlock():
            yield from (f"{escape(block.text)} {_code(block.command)}".rstrip(), "")
        case _:
            yield from (escape(block), "")


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], groups: Sequence[int] = ()
) -> Iterator[str]:
    if rows:
        rules = ("---:" if index in right else "---" for index in range(len(heads)))
        yield from (f"| {' | '.join(map(escape, heads))} |", f"|{'|'.join(rules)}|")
        for number, (first, *rest) in enumerate(rows):
            name = f"**{escape(first)}**" if number in groups else escape(first)
            yield f"| {' | '.join((name, *map(escape, rest)))} |"
        yield ""


def _code(text: str) -> str:
    """Text as code; an id of merged advice may contain anything."""
    return "" if not text else f"`{clean(text)}`" if "`" not in text else escape(text)
