"""``skuwise ledger``: what was recommended and what became of it."""

from ....rules.base.command import Command

_HERE = "skuwise.advisor.cli.ledger"

# In the order of the help. A new one is its own file and one line here.
COMMANDS = {
    "list": Command(f"{_HERE}.list", "list recommendations with their state and decisions"),
    "show": Command(f"{_HERE}.show", "show one recommendation: prediction, measurement and history"),
    "accept": Command(f"{_HERE}.accept", "accept a recommendation; it counts as open until it is done"),
    "snooze": Command(f"{_HERE}.snooze", "postpone a recommendation until a date"),
    "dismiss": Command(f"{_HERE}.dismiss", "reject a recommendation, with a reason"),
    "reopen": Command(f"{_HERE}.reopen", "take a decision back; the recommendation is proposed again"),
}
