"""Loads every module of the installed skuwise: what is missing shows now, and later starts find compiled code."""

from __future__ import annotations

import importlib
import pkgutil

import skuwise

for module in pkgutil.walk_packages(skuwise.__path__, "skuwise."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
