"""``skuwise incidents``: what the watch found, and who takes care of it."""

from ....rules.base.command import Command

_HERE = "skuwise.advisor.cli.incidents"

# In the order of the help. A new one is its own file and one line here.
COMMANDS = {
    "list": Command(f"{_HERE}.list", "list open incidents, the most severe and expensive first"),
    "show": Command(f"{_HERE}.show", "show one incident: evidence, cost so far and history"),
    "acknowledge": Command(f"{_HERE}.acknowledge", "take an incident: no reminders until it is resolved"),
    "snooze": Command(f"{_HERE}.snooze", "stop the reminders of an incident until a date"),
}
