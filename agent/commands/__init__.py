"""`skuwise agent`: the commands of the node agent."""

from ...rules.base.command import Command

_HERE = "skuwise.agent.commands"

# In the order of the help. A new one is its own file and one line here.
COMMANDS = {
    "run": Command(f"{_HERE}.run", "sample until stopped, into a database"),
    "once": Command(f"{_HERE}.once", "one reading of every source"),
    "doctor": Command(f"{_HERE}.doctor", "what each source can read here, and if not, why and the remedy"),
    "install": Command(f"{_HERE}.install", "write systemd units and Slurm scripts for this installation"),
    "uninstall": Command(f"{_HERE}.uninstall", "stop the units and remove them"),
    "pause": Command(f"{_HERE}.pause", "release the GPUs for a while: for a reset, a MIG change or a profiler"),
    "resume": Command(f"{_HERE}.resume", "sample the GPUs again"),
    "status": Command(f"{_HERE}.status", "what the running agent does"),
    "snapshot": Command(f"{_HERE}.snapshot", "a consistent copy of the database, live or stopped"),
}
