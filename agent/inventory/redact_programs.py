"""What well-known programs take as a secret by its place: a short option's value, or the word after `login`.

Names of options say nothing here (``mysql -p``, ``curl -u``), so the program has to be known. It may stand behind
others (``sudo``, ``srun``, ``env``), so every word is looked at, not the first alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .redact_environ import MASK, ends_command


class _Options(NamedTuple):
    """Short options that mean a secret: as a word of its own before it, and with the secret attached."""

    own: frozenset[str]
    attached: frozenset[str] = frozenset()


def _both(option: str) -> _Options:
    return _Options(frozenset({option}), frozenset({option}))


_OPTIONS: dict[str, _Options] = {
    **dict.fromkeys(("sshpass", "7z", "rar", "unrar", "cqlsh"), _both("-p")),
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump"), _both("-p")),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore", "mongoimport", "mongoexport"), _both("-p")),
    **dict.fromkeys(("zip", "unzip", "sqlcmd", "mosquitto_pub", "mosquitto_sub"), _both("-P")),
    **dict.fromkeys(("ldapsearch", "ldapmodify", "ldapadd"), _both("-w")),
    "redis-cli": _both("-a"),
    "az": _Options(frozenset({"-p"})),
    "openssl": _Options(frozenset({"-k", "-K", "-pass", "-passin", "-passout"})),
    "ssh-keygen": _Options(frozenset({"-N", "-P"})),
    "curl": _Options(frozenset({"-b", "-E", "--cert", "--cookie"})),
}
# `docker run -p` is a port; only its login takes a password there.
_LOGIN_OPTIONS = dict.fromkeys(("docker", "podman", "nerdctl", "helm"), _both("-p"))
# The words after their `login` may be a key.
_LOGINS = frozenset({"wandb", "weave", "comet", "huggingface-cli", "hf", "neptune", "openai", "ngc"})

_USER_FLAGS = frozenset({"-u", "--user", "-U", "--proxy-user"})
_USER_IN_CLUSTER = re.compile(r"-[A-Za-z#]*[uU]")  # curl -su user:password
# Bounded: a word of nothing but "u" would be tried from each of them on.
_USER_OPTION = re.compile(r"((?:-[A-Za-z]{0,15}u|--user=|--proxy-user=)[^\s:/@=-][^\s:/@]{0,255}):.+", re.DOTALL)
# What -k counts (top-k, folds) is a short number without leading zeros; all other digits may be a key.
_COUNT = re.compile(r"0|[1-9][0-9]{0,4}|0?\.[0-9]{1,4}|[1-9][0-9]?\.[0-9]{1,2}")
# A key attached to -k. Few letters are a cluster of options, small ones a longer option's name.
_KEY_ATTACHED = re.compile(r"(-k=?)(?![A-Za-z]{1,7}$|[a-z_-]+$|[A-Za-z][\w.-]*=)(.+)", re.DOTALL)
# "aws configure set aws_secret_access_key VALUE": a bare name of several parts, one of which can only be a secret's.
_BARE_NAME = re.compile(r"(?i)(?=\w*(?:secret|password|passwd|access_key|api_key))[a-z]\w*_\w+")


class Places:
    """Follows the words of one command line. Not a parser: what it does not know passes to the other rules."""

    def __init__(self) -> None:
        self._begin()

    def mask(self, word: str) -> str | None:
        """`word` without the secret that its place makes it; None: its place says nothing. Call for each word once."""
        previous, self._previous = self._previous, word
        masked = self._masked(word, previous)
        name = word.strip("'\"").rpartition("/")[2]
        if name == "login":
            self._after_login = bool(self._programs & _LOGINS)
            self._take(*(_LOGIN_OPTIONS[program] for program in self._programs if program in _LOGIN_OPTIONS))
        elif name in _OPTIONS:
            self._take(_OPTIONS[name])
        self._programs.add(name)
        if ends_command(word):
            self._begin()
        return masked

    def _begin(self) -> None:
        self._previous = ""
        self._programs: set[str] = set()
        self._own: frozenset[str] = frozenset()
        self._attached: frozenset[str] = frozenset()
        self._after_login = False

    def _take(self, *options: _Options) -> None:
        for one in options:
            self._own |= one.own
            self._attached |= one.attached

    def _masked(self, word: str, previous: str) -> str | None:
        if ends_command(word) and not word.rstrip(";&|"):
            return None
        is_flag = word.startswith("-")
        if previous in self._own:
            return MASK
        if is_flag:
            user = _USER_OPTION.fullmatch(word)
            if user is not None:
                return f"{user[1]}:{MASK}"
            key = _KEY_ATTACHED.fullmatch(word)
            if key is not None and not _COUNT.fullmatch(key[2]):
                return key[1] + MASK
            return word[:2] + MASK if len(word) > 2 and word[:2] in self._attached else None
        if self._after_login or _BARE_NAME.fullmatch(previous):
            return MASK
        if previous == "-k":  # a key, where it is no count (top-k) and no address (curl -k)
            return None if _COUNT.fullmatch(word) or "://" in word else MASK
        if previous in _USER_FLAGS or ("curl" in self._programs and _USER_IN_CLUSTER.fullmatch(previous)):
            user_name, separator, _ = word.partition("%" if previous == "-U" and "%" in word else ":")
            return f"{user_name}{separator}{MASK}" if separator and "://" not in word else None
        return None
