"""What every page on an advice ends with."""

from __future__ import annotations

from ...core.timestamps import minute
from .report_content import Story


def written(story: Story) -> str:
    """Who wrote the page, when, and from what."""
    when = minute(story.advice.generated_at)
    return f"Written by skuwise, {when}, from telemetry alone: nothing was changed on any node."
