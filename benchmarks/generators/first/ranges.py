"""The tables of `ranges.toml`."""

import tomllib
from pathlib import Path
from typing import Any

RANGES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("ranges.toml").read_text(encoding="utf-8"))
