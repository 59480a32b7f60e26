"""A Slurm batch script with other directives: as text, so that every byte that is not changed stays.

Only ``#SBATCH`` lines before the first command count (sbatch(1)); of an option that is given twice the last one does.
"""

import difflib
import re
import shlex
from collections.abc import Iterator

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted
from ..recommend.moves.clocks import VARIABLE
from .change import BY_HAND, Change, Patch, patch_of_files

_SHORT = {"p": "partition", "C": "constraint", "G": "gpus", "N": "nodes", "n": "ntasks", "w": "nodelist"}
# Of those that can request other resources too, the value decides.
_GPU_OPTIONS = ("gres", "gpus-per-node", "gpus", "gpus-per-task", "gpus-per-socket", "tres-per-task")
# Option -> the option that says of how many nodes or tasks it is.
_TIMES = {"gres": "nodes", "gpus-per-node": "nodes", "gpus": None, "gpus-per-task": "ntasks"}
# The lines before the first command.
_HEAD = re.compile(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*(?:#[^\n]*)?")
# A word of a directive: quotes as in a shell; the first '#' that begins a word begins a comment.
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_OPTION = re.compile(r"--([^=]+)(=?)|-([pCGNnw])")
_COUNTED = re.compile(r"(?:(?P<kind>[A-Za-z][\w.+-]*|[1-7]g\.[0-9]+gb[\w.+]*):)?(?P<count>[0-9]{1,5})")


class BatchScript:
    """A script and the changes to it. Raises UsageError where it is none."""

    def __init__(self, text: str) -> None:
        if not text.startswith("#!"):
            raise UsageError("The manifest is not a batch script: it has no '#!'.", "Name a script for sbatch.")
        if re.search(r"^#SBATCH[ \t]+(?:hetjob|packjob)\b", text, re.MULTILINE):
            raise UsageError("The script is a heterogeneous job, which has several parts.", BY_HAND)
        self.text = text

    def _options(self) -> Iterator[tuple[str, int, int]]:
        for line in re.finditer(r"^#SBATCH(?=\s)[^\n]*", _HEAD.match(self.text)[0], re.MULTILINE):  # type: ignore[index]
            name: str | None = None
            for word in _WORD.finditer(self.text, line.start() + len("#SBATCH"), line.end()):
                if word[0].startswith("#"):
                    break
                start, match = word.start(), None
                if name is None or word[0].startswith("-"):
                    match = _OPTION.match(word[0])
                    name = (match[1] or _SHORT[match[3]]) if match else None
                    start += match.end() if match else 0
                    if match is None or (start == word.end() and not match[2]):
                        continue  # no option that is of use, or its value is the next word
                yield name or "", start, word.end()
                name = None

    def value(self, name: str) -> str | None:
        """The value that counts; None: not given."""
        values = [self.text[start:end] for option, start, end in self._options() if option == name]
        return re.sub(r"""^(['"])(.*)\1$""", r"\2", values[-1]) if values else None

    def set(self, name: str, value: str) -> None:
        """Give an option another value where it stands, or add a directive after the last one."""
        for option, start, end in reversed(list(self._options())):
            if option == name:
                self.text = f"{self.text[:start]}{value}{self.text[end:]}"
                return
        newline = "\r\n" if self.text.partition("\n")[0].endswith("\r") else "\n"
        head = _HEAD.match(self.text)[0]  # type: ignore[index]
        at = [match.end() for match in re.finditer(r"^#(?:SBATCH|!)[^\n]*\n?", head, re.MULTILINE)][-1]
        gap = "" if self.text[:at].endswith("\n") else newline
        self.text = f"{self.text[:at]}{gap}#SBATCH --{name}={value}{newline}{self.text[at:]}"

    def gpus(self) -> tuple[str, str | None, int, int]:
        """How it asks for GPUs: the option, their type, their count in it, and of how many nodes or tasks.

        Raises UsageError where it asks for none, in several options, or in a way that is not understood.
        """
        requests = {name: value for name in _GPU_OPTIONS if (value := self.value(name)) is not None}
        requests = {name: v for name, v in requests.items() if name.startswith("gpus") or re.search(r"\bgpu\b", v)}
        if len(requests) == 1 and (name := next(iter(requests))) in _TIMES:
            bare = re.sub(r"^gres[/:]gpu:|^gpu:|^gpu$", "", requests[name]) or "1" if name == "gres" else requests[name]
            match, per = _COUNTED.fullmatch(bare), _TIMES[name]
            times = (self.value(per) if per is not None else None) or "1"
            if match is not None and times.isdecimal():
                return name, match["kind"], int(match["count"]), int(times)
        what = "--gres=gpu:N, --gpus, --gpus-per-node or --gpus-per-task alone"
        raise UsageError(f"The script does not ask for GPUs with {what}.", BY_HAND)

    def set_gpus(self, option: str, kind: str | None, count: int) -> None:
        parts = ("gpu" if option == "gres" else "", kind or "", str(count))
        self.set(option, ":".join(part for part in parts if part))


def slurm_patch(change: Change) -> Patch:
    """Raises UsageError for what is no batch script, or one of another workload."""
    assert change.manifest is not None
    before, name = change.manifest.text, clean(change.manifest.path.name)
    script = BatchScript(before)
    notes = ["Jobs that are queued or running keep the directives they were submitted with."]
    if change.action in ("move-sku", "reduce-gpus"):
        notes += _resize(script, change, name)
    match change.action:
        case "move-sku" | "swap-placement":
            notes += _place(script, change, name)
        case "mig-slice":
            option, _, count, _ = script.gpus()
            if count != 1:
                raise UsageError(f"The script asks for {count} GPUs; a MIG instance takes the place of one.", BY_HAND)
            script.set_gpus(option, change.mig_profile, 1)
        case "lower-clock":
            asked = (script.value("gpu-freq") or "").split(",")
            memory = [part for part in asked if re.fullmatch(r"memory=\w+|verbose", part)]
            script.set("gpu-freq", ",".join([str(change.mhz), *memory]))
            notes.append("--gpu-freq needs the gres/gpu plugin with NVML; without it Slurm ignores the option.")
        case "rest-clocks":
            handed = script.value("export") or "ALL"
            if not re.fullmatch(r"(?!NONE|NIL)[\w,=./:-]+", handed):
                raise UsageError(f"{name} has --export={quoted(handed)}.", f"Add {VARIABLE}=1 by hand.")
            script.set("export", handed if f"{VARIABLE}=1" in handed.split(",") else f"{handed},{VARIABLE}=1")
    if script.text == before:
        raise UsageError(f"{name} has what the recommendation asks for already.", "Name the file that is in use.")
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "file"
    where = shlex.quote(str(change.manifest.path.resolve()))  # GNU patch refuses to change a file through a link
    texts = _unified(before, script.text, label), _unified(script.text, before, label)
    return patch_of_files(f"{label}.diff", texts, f"patch {where}", notes)


def _unified(before: str, after: str, label: str) -> str:
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{label}", f"b/{label}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _kept(script: BatchScript, name: str, *options: str) -> list[str]:
    values = {option: script.value(option) for option in options}
    left = {option: value for option, value in values.items() if value not in (None, "1")}
    return [f"{name} still asks for --{option}={clean(value)}: check that it fits." for option, value in left.items()]


def _place(script: BatchScript, change: Change, name: str) -> list[str]:
    if change.partition is not None:
        script.set("partition", change.partition)
    if change.feature is None:
        return _kept(script, name, "constraint", "nodelist")
    old = script.value("constraint")
    if old is not None and not re.fullmatch(r"[\w.-]+", old):  # which of them the target has is unknown
        raise UsageError(f"{name} has the constraint {quoted(old)} of several features.", BY_HAND)
    script.set("constraint", change.feature)
    return _kept(script, name, "nodelist")


def _resize(script: BatchScript, change: Change, name: str) -> list[str]:
    option, kind, count, times = script.gpus()
    before, after = count * times, change.gpus_after
    change.check_size("The script", before)
    kind = None if change.changes_gpu else kind
    # What the count of GPUs is of, and what follows it.
    settled = {"gpus": (), "gpus-per-task": ("ntasks",)}.get(option, ("nodes",))
    if after % count == 0 and times > 1:
        script.set(settled[0], str(after // count))
        script.set_gpus(option, kind, count)
        settled = ("nodes", "ntasks-per-node") if settled == ("nodes",) else settled
    elif after % times == 0 and after:
        script.set_gpus(option, kind, after // times)
    else:
        raise UsageError(f"{times} x {count} GPUs cannot become {after} by fewer nodes or GPUs.", BY_HAND)
    kept = [option for option in ("nodes", "ntasks", "ntasks-per-node") if option not in settled and after != before]
    return _kept(script, name, *kept)
