"""``skuwise rules``: what verdicts rest on, and whether a site's files are right."""

from ..base.command import Command

_HERE = "skuwise.rules.commands"

# In the order of the help. A new one is its own file and one line here.
COMMANDS = {
    "list": Command(f"{_HERE}.list", "every threshold with its unit, resolution, reason and origin"),
    "check": Command(f"{_HERE}.check", "check the rules that ship, or a site's own folder over them"),
    "features": Command(f"{_HERE}.features", "the features that a custom rule may ask for, with their units"),
}
