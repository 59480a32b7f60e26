"""A feature that the code asks for by a name which nobody forms would read as missing, in silence."""

from __future__ import annotations

import re
from pathlib import Path

import skuwise.advisor
from skuwise.rules.policy.features import FEATURES

ASKED = re.compile(
    r'features\.get\(\s*"(\w+)"|features\["(\w+)"\]|"(\w+)" (?:not )?in \w*\.?features|\.feature\("(\w+)"'
    r'|\b_mean\(\w+, "(\w+)"\)'
)


def test_every_feature_that_is_asked_for_is_one() -> None:
    files = sorted(Path(skuwise.advisor.__file__).parent.rglob("*.py"))
    asked = {next(filter(None, m.groups())): file.name for file in files for m in ASKED.finditer(file.read_text())}
    assert len(asked) > 20
    assert {name: file for name, file in asked.items() if name not in FEATURES} == {}
