"""Loads every module of the installed skuwise: what is missing shows now, and later starts find compiled code."""

from __future__ import annotations

import importlib
import pkgutil

import skuwise

# A checkout that is used in place has tests and benchmarks beside these.
for floor in ("agent", "advisor", "rules", "tui"):
    for module in pkgutil.walk_packages([f"{place}/{floor}" for place in skuwise.__path__], f"skuwise.{floor}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
