"""The pages of the menu in their order: the first comes up first, and its place in the order is a page's key."""

from __future__ import annotations

from .base_page import Page
from .doctor import Doctor
from .fleet import FleetPage
from .incidents import Incidents
from .overview import Overview
from .plan import PlanPage
from .recommendations import Recommendations
from .skus import Skus
from .whatif import WhatIf
from .workloads import Workloads

MENU: tuple[type[Page], ...] = (
    Overview, FleetPage, Workloads, Recommendations, WhatIf, Skus, Doctor, Incidents, PlanPage,
)  # fmt: skip
