"""``skuwise prices``: what is really paid."""

from ....rules.base.command import Command

COMMANDS = {
    "import": Command(
        "skuwise.advisor.cli.prices.import_export",
        "import prices from a billing export: FOCUS 1.x or AWS cost and usage report (CSV, plain or gzip)",
    )
}
