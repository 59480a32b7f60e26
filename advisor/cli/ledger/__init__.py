"""``skuwise ledger``: what was recommended and what became of it."""

from ....rules.base.command import Command

_HERE = "skuwise.advisor.cli.ledger"

# In the order of the help. A new one is its own file and one line here.
COMMANDS = {
    "list": Command(f"{_HERE}.list", "what was recommended, its state, and who decided what, when and why"),
    "show": Command(f"{_HERE}.show", "one recommendation: what was predicted, what was measured, and its history"),
    "accept": Command(f"{_HERE}.accept", "it will be done; it counts until it is"),
    "snooze": Command(f"{_HERE}.snooze", "not now: it is not counted until then"),
    "dismiss": Command(f"{_HERE}.dismiss", "it will not be done; it is not counted any more"),
    "trial": Command(f"{_HERE}.trial", "one replica goes first: the next advice compares it with the rest"),
}
