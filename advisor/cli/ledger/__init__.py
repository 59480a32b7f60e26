"""``skuwise ledger``: what was recommended and what became of it."""

from ....rules.base.command import Command

_HERE = "skuwise.advisor.cli.ledger"

# In the order of the help.
COMMANDS = {
    "list": Command(f"{_HERE}.entries:list_command", "list recommendations with their state and decisions"),
    "show": Command(f"{_HERE}.entries:show_command", "show one recommendation: prediction, measurement and history"),
    "accept": Command(f"{_HERE}.decisions:accept", "accept a recommendation; it counts as open until it is done"),
    "snooze": Command(f"{_HERE}.decisions:snooze", "postpone a recommendation until a date"),
    "dismiss": Command(f"{_HERE}.decisions:dismiss", "reject a recommendation, with a reason"),
    "reopen": Command(f"{_HERE}.decisions:reopen", "take a decision back; the recommendation is proposed again"),
}
