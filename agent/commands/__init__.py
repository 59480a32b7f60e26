"""`skuwise agent`: the commands of the node agent."""

from ...rules.base.command import Command

_HERE = "skuwise.agent.commands"

# In the order of the help. A new one is its own file and one line here.
COMMANDS = {
    "run": Command(f"{_HERE}.run", "sample into a database until stopped"),
    "once": Command(f"{_HERE}.once", "read every source once"),
    "doctor": Command(f"{_HERE}.doctor", "report what each source can read here, and the remedy where it cannot"),
    "install": Command(f"{_HERE}.install", "write systemd units and Slurm scripts for this installation"),
    "uninstall": Command(f"{_HERE}.uninstall", "stop and remove the systemd units"),
    "pause": Command(f"{_HERE}.pause", "release the GPUs for a while, for a reset, a MIG change or a profiler"),
    "resume": Command(f"{_HERE}.resume", "sample the GPUs again after a pause"),
    "status": Command(f"{_HERE}.status", "show the state of the running agent"),
    "snapshot": Command(f"{_HERE}.snapshot", "copy the database consistently, running or stopped"),
}
