"""Commands with and without secrets: the files of `tests/data/commands`, and a grammar that draws more secrets.

A form is one way of passing a secret. Its brackets hold the secret: ``S`` stands for any one word, ``W`` for anything
that an argument may hold, all else is the secret itself (`tests/data/commands/secrets.txt`).
"""

import json
import random
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "data" / "commands"
_BRACKETS = re.compile(r"⟦([^⟧]*)⟧")
_PIECE = re.compile(r"\w{4,}")

WORDS = ("hunter2", "swordfish", "73918264")
"""Secrets that no reader tells from other words by their form."""
WILD = ("-Zq8vault", "correct horse battery", "s3cr;et,x&y", "pq7x=rr8y/zz9w==", "ünïcode-päss", "--dashed_Long9")
"""Secrets that only the end of the argument ends."""


@dataclass(frozen=True, slots=True)
class Command:
    """`argv` of a process, and the `secrets` in it."""

    argv: tuple[str, ...]
    secrets: tuple[str, ...]

    def pieces(self) -> frozenset[str]:
        """The runs of four letters and more of the secrets that are not also part of the rest of the command."""
        rest = " ".join(self.argv)
        for secret in sorted(self.secrets, key=len, reverse=True):
            rest = rest.replace(secret, " ")
        found = {piece for secret in self.secrets for piece in _PIECE.findall(secret)}
        return frozenset(piece for piece in found if piece not in rest)

    def leaks_in(self, shown: str) -> bool:
        return any(piece in shown for piece in self.pieces())


def forms(name: str) -> list[str]:
    """The commands of a file as they are written there: one for each line, but quotes may span lines."""
    found: list[str] = []
    held = ""
    for line in (_FOLDER / name).read_text(encoding="utf-8").splitlines():
        if not held and (not line or line.startswith("#")):
            continue
        held = f"{held}\n{line}" if held else line
        try:
            shlex.split(held)
        except ValueError:
            continue
        found.append(held)
        held = ""
    assert not held, held
    return found


def commands(form: str) -> Iterator[Command]:
    """`form` with each secret that its brackets stand for."""
    argv = shlex.split(form)
    marks = set(_BRACKETS.findall(form))
    values = WORDS + WILD if "W" in marks and "S" not in marks else WORDS if marks & {"S", "W"} else ("",)
    for value in values:
        yield _filled(argv, value)


def _filled(argv: list[str], value: str) -> Command:
    secrets: list[str] = []

    def fill(match: re.Match[str]) -> str:
        secrets.append(value if match[1] in {"S", "W"} else match[1])
        return secrets[-1]

    return Command(tuple(_BRACKETS.sub(fill, word) for word in argv), tuple(secrets))


# --- the grammar ---

_OWNERS = (
    "db", "admin", "user", "proxy", "smtp", "ldap", "s3", "registry", "hub", "mlflow", "vault", "github", "redis",
    "ssl", "jwt", "oauth", "root", "service",
)  # fmt: skip
_KINDS = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "api key", "access key", "secret key",
    "private key", "auth token", "client secret", "credentials", "encryption key", "access token", "pass",
)  # fmt: skip
_STYLES: tuple[Callable[[list[str]], str], ...] = (
    "-".join,
    "_".join,
    ".".join,
    lambda parts: parts[0] + "".join(part.title() for part in parts[1:]),
    lambda parts: "".join(part.title() for part in parts),
    lambda parts: "_".join(parts).upper(),
)
_WORD_POSITIONS: tuple[Callable[[str, str], list[str]], ...] = (
    lambda name, value: [f"--{name}", value],
    lambda name, value: [f"--{name}={value}"],
    lambda name, value: [f"-{name}", value],
    lambda name, value: [f"-{name}={value}"],
    lambda name, value: [f"--{name}:{value}"],
    lambda name, value: [f"{name}={value}"],
    lambda name, value: [f"+{name}={value}"],
    lambda name, value: [f"x.{name}={value}", "y=1"],
    lambda name, value: [f"{name}: {value}"],
    lambda name, value: ["-e", f"{name}={value}"],
    lambda name, value: [f"-e{name}={value}"],
    lambda name, value: ["--set", f"a=1,{name}={value}"],
    lambda name, value: [f"--env={name}={value}"],
    lambda name, value: [f"-D{name}={value}"],
    lambda name, value: [json.dumps({"a": {name: value}, "b": 1})],
    lambda name, value: [f"<{name}>{value}</{name}>"],
    lambda name, value: ["-c", f"f({name}={value!r}, x=1)"],
    lambda name, value: ["-c", f"d = {{{name!r}: {value!r}}}"],
    lambda name, value: ["-H", f"{name}: {value}"],
)
_ONE_WORD_POSITIONS: tuple[Callable[[str, str], list[str]], ...] = (
    lambda name, value: [f"https://h/x?a=1&{name}={value}&b=2"],
    lambda name, value: [f"--export=ALL,{name}={value},B=1"],
    lambda name, value: [f"Server=h;{name}={value};A=1"],
    lambda name, value: [f"a: 1\n{name}: {value}\nb: 2"],
    lambda name, value: [f"host=h {name}={value} port=1"],
    lambda name, value: [f"{{{name}: {value}, b: 1}}"],
)
_WRAPPERS: tuple[Callable[[list[str]], list[str]], ...] = (
    lambda argv: argv,
    lambda argv: argv,
    lambda argv: ["sudo", "-u", "alice", *argv],
    lambda argv: ["env", "A=1", *argv],
    lambda argv: ["srun", "-n", "1", *argv],
    lambda argv: ["bash", "-c", shlex.join(argv)],
    lambda argv: ["ssh", "node1", shlex.join(argv)],
    lambda argv: ["bash", "-c", f"cd /work && exec {shlex.join(argv)}; exit 1"],
    lambda argv: ["sbatch", "--wrap", shlex.join(argv)],
    lambda argv: ["sh", "-c", shlex.join(["bash", "-c", shlex.join(argv)])],
)
_PROGRAMS = (
    "./serve",
    "python train.py",
    "kubectl apply",
    "java -jar a.jar",
    "node a.js",
    "docker run img",
    "tool sub",
)
_LETTERS = "abcdefghijkmnpqrstuvwxyz"


def drawn(seed: int, count: int) -> Iterator[Command]:
    """`count` commands with a secret, drawn from a grammar of programs, names, positions, values and wrappers."""
    rng = random.Random(seed)
    for _ in range(count):
        name = rng.choice(_STYLES)([*rng.sample(_OWNERS, rng.randint(0, 1)), *rng.choice(_KINDS).split()])
        word = "".join(rng.choices(_LETTERS, k=rng.randint(6, 14)))
        digits = "".join(rng.choices("0123456789", k=rng.randint(9, 12)))
        plain = (word, digits, f"{word}{digits}", f"{word.upper()}-{digits}")
        wild = (f"-{word}", f"--{word}", f"{word} {word[::-1]}", f"{word};{digits}", f"{word}={digits}", f"#{word}")
        if rng.random() < 0.7:
            secret = rng.choice(plain + wild)
            words = rng.choice(_WORD_POSITIONS)(name, secret)
        else:
            secret = rng.choice(plain)
            words = rng.choice(_ONE_WORD_POSITIONS)(name, secret)
        argv = [*rng.choice(_PROGRAMS).split(), *words, *rng.choice(([], ["--verbose"], ["--lr", "0.1"]))]
        yield Command(tuple(rng.choice(_WRAPPERS)(argv)), (secret,))
