"""Work without labels: which GPUs work together, told by nothing but what they do."""

from .gangs import find_gangs
from .series import DeviceSeries, Gang

__all__ = ["DeviceSeries", "Gang", "find_gangs"]
