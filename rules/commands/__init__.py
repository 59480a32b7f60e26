"""``skuwise rules``: what verdicts rest on, and whether a site's files are right."""

from ..base.command import Command

_HERE = "skuwise.rules.commands"

# In the order of the help. A new one is its own file and one line here.
COMMANDS = {
    "list": Command(f"{_HERE}.list", "list every threshold with its unit, resolution, reason and origin"),
    "check": Command(f"{_HERE}.check", "check the built-in rules, or a folder of site rules"),
    "features": Command(f"{_HERE}.features", "list the features for custom rules, with their units"),
}
