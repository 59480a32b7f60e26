"""``skuwise skus``: the catalog as people read it, every dollar with its source and its date."""

from ....rules.base.command import Command

_HERE = "skuwise.advisor.cli.skus"

# In the order of the help. A new one is its own file and one line here.
COMMANDS = {
    "list": Command(f"{_HERE}.list", "list GPUs, nodes and list prices"),
    "show": Command(f"{_HERE}.show", "show one GPU or node with every figure and its source"),
    "compare": Command(f"{_HERE}.compare", "predict the time of typical work on another GPU"),
    "plan": Command(f"{_HERE}.plan", "estimate the hardware to train or serve a model"),
}
