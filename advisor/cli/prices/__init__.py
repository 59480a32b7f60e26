"""``skuwise prices``: what is really paid."""

from ....rules.base.command import Command

COMMANDS = {
    "import": Command(
        "skuwise.advisor.cli.prices.import_export",
        "prices from an export of charges: FOCUS 1.x, or AWS' cost and usage report (CSV, or CSV in gzip)",
    )
}
