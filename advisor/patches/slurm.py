"""Patches of Slurm: directives of a batch script.

A Slurm batch script with other directives: as text, so that every byte that is not changed stays.

Only ``#SBATCH`` lines before the first command count (sbatch(1)); of an option that is given twice the last one does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted
from ..recommend.moves.rest_clocks import VARIABLE
from .model import PatchFile, PatchPart, PatchSet
from .names import slurm_name
from .subject import Subject
from .text_diff import text_of, text_part

_SHORT = {"p": "partition", "C": "constraint", "G": "gpus", "N": "nodes", "n": "ntasks", "w": "nodelist"}
# Of those that can ask for other resources than GPUs too, what they ask for tells.
_GPU_OPTIONS = ("gres", "gpus-per-node", "gpus", "gpus-per-task", "gpus-per-socket", "tres-per-task")
_TIMES = {"gres": "nodes", "gpus-per-node": "nodes", "gpus": None, "gpus-per-task": "ntasks"}
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_DIRECTIVE = "#SBATCH"
# A word of a directive: quotes as in a shell; the first '#' that begins a word begins a comment.
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_COUNTED = re.compile(r"(?:(?P<kind>[A-Za-z][\w.+-]*|[1-7]g\.[0-9]+gb[\w.+]*):)?(?P<count>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a directive: its value and where it stands in the text. `start` == `end`: an empty value."""

    name: str
    value: str
    start: int
    end: int


class BatchScript:
    """A script and the changes to it. Raises UsageError where it is none."""

    def __init__(self, text: str) -> None:
        if not text.startswith("#!"):
            raise UsageError(
                "The manifest is not a batch script: it does not begin with '#!'.", "Name a script for sbatch."
            )
        if re.search(rf"^{_DIRECTIVE}[ \t]+(?:hetjob|packjob)\b", text, re.MULTILINE):
            raise UsageError("The script is a heterogeneous job, which has several parts.", "Change its parts by hand.")
        self.text = text
        self.newline = "\r\n" if "\r\n" in text.partition("\n")[0] + "\n" else "\n"
        self._options = list(_options(text))

    def value(self, name: str) -> str | None:
        """The value that counts; None: not given."""
        return next((one.value for one in reversed(self._options) if one.name == name), None)

    def set(self, name: str, value: str) -> None:
        """Give an option another value where it stands, or add a directive after the last one."""
        own = [one for one in self._options if one.name == name]
        if own:
            at = own[-1]
            self.text = f"{self.text[: at.start]}{value}{self.text[at.end :]}"
        else:
            self._insert(f"{_DIRECTIVE} --{name}={value}")
        self._options = list(_options(self.text))

    def export(self, name: str, value: str) -> None:
        """Set a variable before the first command. Raises UsageError where that would not reach the work: another
        language than that of a shell, or an --export that hands only some variables on."""
        if self._interpreter() not in _SHELLS:
            raise UsageError(
                "The script is not one of sh, bash, dash, ksh or zsh, which 'export' needs.",
                f"Submit it with 'sbatch --export=ALL,{name}={value}'.",
            )
        handed = self.value("export")
        if handed is not None and handed.partition(",")[0] != "ALL":
            raise UsageError(
                "The script hands only some variables on, with --export.", f"Add {name}={value} to its --export."
            )
        self._insert(f"export {name}={value}")
        self._options = list(_options(self.text))

    def _interpreter(self) -> str:
        """The program that runs it, without its folder: also after ``/usr/bin/env -S``."""
        words = self.text.partition("\n")[0][2:].split()
        if words and PurePath(words[0]).name == "env":
            words = [one for one in words[1:] if not one.startswith("-") and "=" not in one]
        return PurePath(words[0]).name if words else ""

    def _insert(self, line: str) -> None:
        ends = [end for _, end, text in _head(self.text) if text.startswith((_DIRECTIVE, "#!"))]
        at = ends[-1]
        before = self.text[:at]
        gap = "" if before.endswith("\n") else self.newline
        self.text = f"{before}{gap}{line}{self.newline}{self.text[at:]}"

    def gpus(self) -> tuple[str, str | None, int, int] | None:
        """How it asks for GPUs: the option, their type, their count in that option, and of how many nodes or tasks.
        None: it asks for none, in several options at once, or in a way that is not understood."""
        asking = [(name, told) for name in _GPU_OPTIONS if (told := self.value(name)) is not None]
        asking = [(name, told) for name, told in asking if name.startswith("gpus") or re.search(r"\bgpu\b", told)]
        if len(asking) != 1 or asking[0][0] not in _TIMES:
            return None
        ((name, told),) = asking
        bare = re.sub(r"^gres[/:]gpu:|^gpu:", "", told) if name == "gres" else told
        if name == "gres" and bare == told:
            bare = "1" if told == "gpu" else ""
        found = _COUNTED.fullmatch(bare)
        per = _TIMES[name]
        times = self.value(per) if per is not None else "1"
        if found is None or (times is not None and not times.isdecimal()):
            return None
        return name, found["kind"], int(found["count"]), int(times or 1)

    def set_gpus(self, option: str, kind: str | None, count: int) -> None:
        value = f"{kind}:{count}" if kind else str(count)
        self.set(option, f"gpu:{value}" if option == "gres" else value)


def _head(text: str) -> Iterator[tuple[int, int, str]]:
    """The lines before the first command: begin, end (with its line end), and the line."""
    at = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        bare = line.strip()
        if bare and not bare.startswith("#"):
            return
        yield at, at + len(line), line
        at += len(line)


def _options(text: str) -> Iterator[Option]:
    for start, _, line in _head(text):
        if not line.startswith(_DIRECTIVE) or not line[len(_DIRECTIVE) : len(_DIRECTIVE) + 1].isspace():
            continue
        waiting: str | None = None
        for word in _WORD.finditer(line, len(_DIRECTIVE)):
            told, at = word[0], start + word.start()
            given, waiting = waiting, None
            if given is not None and not told.startswith(("-", "#")):
                yield _option(given, told, at)
            elif told.startswith("#"):
                break
            elif told.startswith("--"):
                name, equals, value = told[2:].partition("=")
                if equals:
                    yield _option(name, value, at + 2 + len(name) + 1)
                else:
                    waiting = name
            elif told.startswith("-") and told[1:2] in _SHORT:
                if len(told) > 2:
                    yield _option(_SHORT[told[1]], told[2:], at + 2)
                else:
                    waiting = _SHORT[told[1]]


def _option(name: str, value: str, start: int) -> Option:
    bare = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    return Option(name, bare, start, start + len(value))


_REMEDY = "Use --manifest FILE with the batch script."
# The supported SM clocks of NVIDIA's data center GPUs are 15 MHz apart (nvidia-smi -q -d SUPPORTED_CLOCKS).
_STEP_MEGAHERTZ = 15


def slurm_patch(subject: Subject) -> PatchSet:
    """Raises UsageError where something is missing that only the user knows."""
    if not subject.asked.manifests:
        raise UsageError(f"A patch of {subject.action} for Slurm changes a file, and none is given.", _REMEDY)
    parts: list[PatchPart] = []
    notes: list[str] = []
    for given in subject.asked.manifests:
        before = text_of(given)
        after, note = _script(subject, before, clean(given.name))
        parts.append(text_part(given, before, after))
        notes += [one for one in note if one not in notes]
    originals = tuple(
        PatchFile(f"original-{p.patch.name[6:-5]}", text_of(g))
        for p, g in zip(parts, subject.asked.manifests, strict=True)
    )
    return PatchSet(tuple(parts), tuple(notes), originals)


def _script(subject: Subject, text: str, name: str) -> tuple[str, tuple[str, ...]]:
    script, asked = BatchScript(text), subject.asked
    notes = ["Jobs that are queued or running keep the directives they were submitted with."]
    match subject.action:
        case "move-sku" | "swap-placement":
            if asked.partition is None and asked.feature is None:
                raise UsageError(
                    f"Slurm partition or feature of {subject.ground.target.node_sku or 'the target'} unknown.",
                    "Set --partition NAME or --feature NAME ('sinfo -o \"%P %f %G\"' lists them).",
                )
            if subject.action == "move-sku":
                notes += _resize(script, subject, name, keep_type=False)
            if asked.partition is not None:
                script.set("partition", slurm_name(asked.partition, "partition"))
            notes += _constrained(script, asked.feature, name)
        case "reduce-gpus":
            notes += _resize(script, subject, name, keep_type=True)
        case "mig-slice":
            option, _, count, _ = _asks(script)
            if count != 1:
                raise UsageError(f"The script asks for {count} GPUs; a MIG instance takes the place of one.", _REMEDY)
            script.set_gpus(option, subject.mig_profile(), 1)
        case "lower-clock":
            asks = (script.value("gpu-freq") or "").split(",")
            others = [one for one in asks if re.fullmatch(r"memory=\w+|verbose", one)]
            script.set("gpu-freq", ",".join([str(_clock_megahertz(subject)), *others]))
            notes.append("--gpu-freq needs the gres/gpu plugin with NVML; without it Slurm ignores the option.")
        case "rest-clocks":
            script.export(VARIABLE, "1")
        case _:
            raise AssertionError(subject.action)
    return script.text, tuple(notes)


def _asks(script: BatchScript) -> tuple[str, str | None, int, int]:
    found = script.gpus()
    if found is None:
        raise UsageError(
            "The script does not ask for GPUs with --gres=gpu:N, --gpus, --gpus-per-node or --gpus-per-task alone.",
            "Change it by hand.",
        )
    return found


def _constrained(script: BatchScript, feature: str | None, name: str) -> list[str]:
    """Nodes with a feature, in place of the one that was asked for; and what else still chooses its nodes.

    Raises UsageError for a constraint of several features: which of them the target has too is not known.
    """
    old, notes = script.value("constraint"), []
    if feature is not None:
        if old is not None and not re.fullmatch(r"[\w.-]+", old):
            raise UsageError(f"{name} has the constraint {quoted(old)} of several features.", "Change it by hand.")
        script.set("constraint", slurm_name(feature, "feature"))
        if old not in (None, feature):
            notes.append(f"{name} asked for the feature {old}; it asks for {feature} instead.")
    elif old is not None:
        notes.append(f"{name} still asks for --constraint={clean(old)}: the nodes of the target must have it.")
    nodes = script.value("nodelist")
    if nodes is not None:
        notes.append(f"{name} still asks for --nodelist={clean(nodes)}: set it to nodes of the target.")
    return notes


def _resize(script: BatchScript, subject: Subject, name: str, *, keep_type: bool) -> list[str]:
    """As many GPUs as the target has: fewer nodes (tasks) where they are whole, else fewer of each.

    Returns what of the old size is still asked for.
    """
    option, kind, count, times = _asks(script)
    before, after = subject.ground.source.gpu_count, subject.ground.target.gpu_count
    if count * times != before:
        raise UsageError(
            f"The script asks for {count * times} GPUs; the recommendation starts from {before}.",
            "Name the script of the whole workload; of several jobs, change each by hand.",
        )
    kind = kind if keep_type or subject.ground.source.gpu_sku == subject.ground.target.gpu_sku else None
    # What the count of GPUs is of, and what follows it.
    settled = {"gpus": (), "gpus-per-task": ("ntasks",)}.get(option, ("nodes",))
    if after % count == 0 and times > 1:
        script.set(settled[0], str(after // count))
        script.set_gpus(option, kind, count)
        settled = ("nodes", "ntasks-per-node") if settled == ("nodes",) else settled
    elif after % times == 0 and after:
        script.set_gpus(option, kind, after // times)
    else:
        raise UsageError(
            f"{times} x {count} GPUs cannot become {after} by fewer nodes or fewer GPUs.", "Change it by hand."
        )
    kept = [(one, script.value(one)) for one in ("nodes", "ntasks", "ntasks-per-node") if one not in settled]
    return [
        f"{name} still asks for --{one}={clean(told)}: set it to what {after} GPUs need."
        for one, told in kept
        if told not in (None, "1") and after != before
    ]


def _clock_megahertz(subject: Subject) -> int:
    """The SM clock, rounded down to a step. Raises UsageError where the clock of today was not measured."""
    if subject.asked.megahertz is not None:
        return subject.asked.megahertz
    share, before, gpu = subject.told.clock_share, subject.ground.before, subject.gpu
    ratio = before.clock_ratio if before is not None else None
    if share is None or ratio is None or gpu is None:
        raise UsageError(
            "The ledger does not know the SM clock of this recommendation: set --mhz.",
            f"Run 'skuwise ledger show {subject.id}' for the recommended change, and set it here.",
        )
    return int(share * ratio * gpu.tensor_reference_hertz / 1e6 // _STEP_MEGAHERTZ) * _STEP_MEGAHERTZ
