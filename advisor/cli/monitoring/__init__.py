"""``skuwise monitoring``: files for Prometheus and Grafana."""

from ....rules.base.command import Command

_HERE = "skuwise.advisor.cli.monitoring"

COMMANDS = {
    "rules": Command(f"{_HERE}.rules", "print alerting rules for Prometheus"),
    "dashboards": Command(f"{_HERE}.dashboards", "write the Grafana dashboards"),
}
