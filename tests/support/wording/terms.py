"""Holds texts to ``rules/wording.yaml``: phrases that no user should read, and sentences that are too long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from .texts import ROOT, Shown, shown, sources

WORDS = ROOT / "rules" / "wording.yaml"
_END = re.compile(r"(?<=[.!?])[\"”)]*\s+(?=[\"“(A-Z{\d`])|\n\s*\n|:?\s*\n\s*[-*•]\s|:\s*\n")
_NOT_AN_END = re.compile(r"\b(e\.g|i\.e|vs|cf|approx|St|No|p)\.$")


@dataclass(frozen=True, slots=True)
class Term:
    """`pattern` must not appear, but within one of `allow`; `say`: what to write instead."""

    pattern: re.Pattern[str]
    say: str
    allow: tuple[re.Pattern[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Wording:
    terms: tuple[Term, ...]
    max_words: int


@dataclass(frozen=True, slots=True)
class Complaint:
    """Where (`place`: file and line), and what is wrong with it in one line."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def load_wording(path: Path = WORDS) -> Wording:
    """Raises ValueError for a key that is not read."""
    data = yaml.safe_load(path.read_text("utf-8"))
    if set(data) != {"max_words_per_sentence", "terms"}:
        raise ValueError(f"{path}: unknown or missing keys: {sorted(data)}")
    return Wording(tuple(_term(one) for one in data["terms"]), int(data["max_words_per_sentence"]))


def _term(data: dict[str, object]) -> Term:
    if not {"pattern", "say"} <= set(data) <= {"pattern", "say", "allow"}:
        raise ValueError(f"a term has the keys pattern, say and allow, not {sorted(data)}")
    allow = data.get("allow", [])
    assert isinstance(allow, list)
    return Term(_whole(str(data["pattern"])), str(data["say"]), tuple(_whole(str(one)) for one in allow))


def _whole(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-]|(?<=\$)\B)", re.IGNORECASE)


def complaints(texts: Iterable[Shown], wording: Wording) -> Iterator[Complaint]:
    """What is wrong with `texts`, in their order."""
    for one in texts:
        flat = " ".join(one.text.split())
        for term in wording.terms:
            for found in term.pattern.finditer(flat):
                if not any(
                    a.start() <= found.start() and found.end() <= a.end() for p in term.allow for a in p.finditer(flat)
                ):
                    around = flat[max(0, found.start() - 40) : found.end() + 30]
                    yield Complaint(one.path, one.line, f"“{found[0]}”: write “{term.say}” (… {around} …)")
        if one.sentences:
            for sentence in sentences(one.text):
                if (count := len(words(sentence))) > wording.max_words:
                    yield Complaint(
                        one.path, one.line, f"{count} words in a sentence: {' '.join(sentence.split())[:160]}"
                    )


def sentences(text: str) -> list[str]:
    """`text` by its ends of sentences; one per entry of a list."""
    parts: list[str] = []
    for part in _END.split(text):
        if parts and _NOT_AN_END.search(parts[-1]):
            parts[-1] += " " + part
        else:
            parts.append(part)
    return [part for part in parts if part.strip()]


def words(sentence: str) -> list[str]:
    return re.findall(r"[A-Za-z{][\w{}'’.-]*", sentence)


def found_in(paths: Iterable[Path], wording: Wording) -> list[Complaint]:
    """What is wrong with the texts of `paths`."""
    return [one for path in paths for one in complaints(shown(path), wording)]


__all__ = ["Complaint", "Term", "Wording", "complaints", "found_in", "load_wording", "sentences", "sources", "words"]
