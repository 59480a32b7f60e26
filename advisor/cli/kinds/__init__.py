"""``skuwise kinds``: what a site can teach of its own kinds of work."""

from ....rules.base.command import Command

_HERE = "skuwise.advisor.cli.kinds"

# In the order of the help. A new one is its own file and one line here.
COMMANDS = {
    "fit": Command(f"{_HERE}.fit", "fit a correction from labeled work"),
}
