"""Secrets taken out of command lines before anything keeps them.

Better a harmless word lost than a key kept: what looks like a secret by its name, its place or its form becomes
``***``. Where one argument ends and the next begins is evidence: the argument after a secret's flag is its value,
whatever it looks like, and a value in ``--password=...`` ends where its argument does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from ...base.safe_text import clean_text
from .environments import MASK, ends_command, without_environments
from .programs import BY_POSITION, PLAIN_FLAG, Places
from .secret_names import is_secret, is_secret_name, is_strong_name, may_be_switch, name_parts, words_of
from .texts import flag_of, is_scheme, pair_of, plain_letters, redact_text

__all__ = ["COMMAND_LIMIT", "is_secret_name", "redact_command", "redact_name", "redact_text", "redact_words"]

COMMAND_LIMIT = 1024
# More than this is not looked at: a hostile command line must not cost time, and only COMMAND_LIMIT is kept.
_WORD_LIMIT, _TOTAL_LIMIT = 2048, 8192

# A word of a shell's line, quotes and all.
_TOKEN = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\]|['"\\])+""", re.DOTALL)
_FLAG_PAIR = re.compile(r"--?[A-Za-z][\w.-]{0,63}=")
_MAX_DEPTH = 5  # lines within quotes within lines
# Programs whose one argument is code or a query: its words are not those of a command.
_INTERPRETERS = re.compile(
    r"(?:python[\d.]*|pypy3?|ipython|node|deno|bun|perl|ruby|php|Rscript|R|julia|groovy|lua|psql|mysql|mariadb|sqlite3|mongosh"
    r"|duckdb|clickhouse-client|octave|matlab)"
)
_CODE_FLAGS = frozenset({"-c", "-e", "-r", "-E", "-q", "--eval", "--execute", "--command", "-batch", "--print", "-pe"})
_SHELL_LINE = re.compile(r"(?:^|\s)(?:&&|\|\|?|;)(?:\s|$)|;\s|\s--?\w|<<|^\s*(?:export|exec|cd|env|set|source)\s")
_PLATFORM_FLAG = re.compile(r"(/(?:p|pass|pw|pwd)):.+", re.DOTALL)  # xfreerdp /p:SECRET
_SEPARATORS = frozenset({"=", ":", ":=", "=>", "->", "==", "is"})
_NO_VALUES = words_of(
    "of in for to and or the a from with by at on as is was must should can will strength length lookup list create "
    "renew revoke get show delete info generate reset"
)
_ALONE = frozenset({"token", "passwd", "pwd"})
_ALONE_NOT = words_of("secret secrets credential credentials cookie signature pw pat sig sas dsn jwt oauth creds")
_VERBS = words_of("change set reset update add create new")
_SEARCHES = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack", "pgrep", "pkill", "man", "which"})
# A commit is named by 40 hexadecimal digits, as many keys are.
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_COMMIT_FLAGS = frozenset({"revision", "commit", "sha", "rev", "ref", "checksum", "digest"})
# Commands that read a secret from the pipe before them.
_READS_SECRET = words_of(
    "--password-stdin --with-token --token-stdin --passphrase-fd -S chpasswd passwd login --stdin vncpasswd"
)
_PRINTS = frozenset({"echo", "printf"})
_HERE = re.compile(r"(?:.*[^<])?<<-?\\?([A-Za-z_]\w{0,63})?", re.DOTALL)
_PRINTED = re.compile(r".*(<\(|\$\(|`)(?:[\w./-]{0,64}/)?(?:echo|printf)", re.DOTALL)


def redact_command(argv: Sequence[str], limit: int = COMMAND_LIMIT) -> str:
    """The command as one line without secrets, control characters stripped, cut to `limit` characters."""
    words: list[str] = []
    total = 0
    for word in _redact_words(argv, 0):
        words.append(word)
        total += len(word)
        if total > 2 * limit:  # what comes after is not kept, even where spaces fold
            break
    return clean_text(" ".join(words), limit)


def redact_words(argv: Sequence[str]) -> list[str]:
    """The words of a command without secrets, each in its place: for what makes a name of some of them."""
    return list(_redact_words(argv, 0))


def redact_name(name: str) -> str:
    """The name of a job or of work without secrets: somebody may have made it of a command line."""
    return _redact_word(name, 0, is_code=False)


def _redact_words(argv: Sequence[str], depth: int, *, in_words: bool = True) -> Iterator[str]:
    """One word for each of `argv`, up to what is looked at. `in_words`: not prose."""
    seen = _seen(argv)
    piped = _piped_secrets(seen)
    flow = _Flow(in_words)
    places = Places()
    for index, given in enumerate(without_environments(seen)):
        if given == "…" and seen[index] == "…":
            yield given
            continue
        word = plain_letters(given)
        by_place = places.mask(word)
        if index in piped or flow.hides(word):
            yield MASK + (";" if depth and word.endswith(";") else "")
        elif by_place is not None:
            yield by_place
            flow.follow(by_place)
        else:
            is_commit = flow.names_commit and _COMMIT.fullmatch(word)
            yield word if is_commit else _redact_word(word, depth, is_code=flow.is_code)
            flow.follow(word)


def _seen(argv: Sequence[str]) -> list[str]:
    """The part of a command line that is looked at: "…" for a word that is too long, and at the end of the rest."""
    kept: list[str] = []
    total = 0
    for word in argv:
        total += min(len(word), _WORD_LIMIT) + 1
        if total > _TOTAL_LIMIT:
            return [*kept, "…"]
        kept.append(word if len(word) <= _WORD_LIMIT else "…")
    return kept


def _piped_secrets(words: Sequence[str]) -> frozenset[int]:
    """Where ``echo S | docker login --password-stdin`` and ``sudo -S x <<< S`` have their secrets."""
    found: set[int] = set()
    printing: list[int] | None = None  # places of what is printed in this part of a pipe
    waiting: list[int] = []  # of the part before it
    previous = ""
    for index, word in enumerate(words):
        if previous == "<<<" or (word.startswith("<<<") and len(word) > 3):
            found.add(index)
        if word == "|":
            waiting, printing = printing or [], None
        elif ends_command(word):
            waiting, printing = [], None
        elif printing is None and word.rpartition("/")[2] in _PRINTS:
            printing = []
        elif printing is not None:
            printing += [index]
        if waiting and word.rpartition("/")[2] in _READS_SECRET:
            found.update(waiting)
            waiting = []
        previous = word
    return frozenset(found) | _here_secrets(words) | _printed_files(words)


def _here_secrets(words: Sequence[str]) -> frozenset[int]:
    """Where ``docker login --password-stdin <<EOF`` has its secret: all up to the word that ends the document."""
    found: set[int] = set()
    reads, ends = False, ""
    for index, word in enumerate(words):
        if ends:
            if word.rstrip(");") == ends:
                reads, ends = False, ""
            elif reads:
                found.add(index)
        elif words[index - 1 : index] in (["<<"], ["<<-"]):
            ends = word
        elif (here := _HERE.fullmatch(word)) is not None:
            ends = here[1] or ""
        elif ends_command(word):
            reads = False
        else:
            reads = reads or word.rpartition("/")[2] in _READS_SECRET
    return frozenset(found)


def _printed_files(words: Sequence[str]) -> frozenset[int]:
    """Where ``read TOKEN < <(echo S)``, ``--password-file=<(echo S)`` and ``TOKEN=$(echo S)`` have their secrets."""
    found: set[int] = set()
    end = ""
    for index, word in enumerate(words):
        if end:
            found.add(index)
            end = "" if end in word else end
        elif (printed := _PRINTED.fullmatch(word)) is not None and (printed[1] == "<(" or pair_of(word) is not None):
            end = "`" if printed[1] == "`" else ")"
    return frozenset(found)


class _Flow:
    """What the words before one say about it."""

    def __init__(self, in_words: bool) -> None:
        self._in_words = in_words
        self._name = ""  # the flag whose values come next
        self._must = False  # the next word is a secret, whatever it looks like
        self._bare = False  # it follows a name, not a flag
        self._all = False  # and so are the words behind it: "change_password USER SECRET"
        self._in_pem = False
        self._pem_ends = False
        self._searching = False
        self._previous = self._before = ""
        self._interpreter = False
        self._git = False
        self.is_code = False
        self.names_commit = False

    def hides(self, word: str) -> bool:
        """Whether the place of `word` makes it a secret."""
        if self._in_pem:
            self._pem_ends = self._pem_ends or "-----END" in word
            self._in_pem = not (self._pem_ends and word.endswith("-----"))
            return True
        if word.startswith("-----BEGIN") and not word.endswith("-----"):
            self._in_pem, self._pem_ends = True, False
            return True
        if not (self._must or self._name):
            return False
        if word in _SEPARATORS and not flag_of(self._previous):
            self._must = True
            return False
        if self._bare and (PLAIN_FLAG.fullmatch(word) or word.lower() in _NO_VALUES or not word.strip(";&|<")):
            self._must = self._bare = self._all = False
            return False
        if self._must:
            self._must = word == "--" or self._all
            self._previous = ""
            # Of a flag's several values (vLLM's --api-key takes them) all go, up to the next flag.
            return not self._name or is_secret(self._name, word) or word == "--"
        if PLAIN_FLAG.fullmatch(word):
            self._name = ""
            return False
        return is_secret(self._name, word)

    def follow(self, word: str) -> None:
        """Take up a word that is shown: what does it say about the next?"""
        if word in _SEPARATORS and self._must:
            return
        self._name, self._must, self._bare, self._all = "", False, False, False
        program = word.rpartition("/")[2]
        self._interpreter = self._interpreter or _INTERPRETERS.fullmatch(program) is not None
        self.is_code = (self._interpreter and word in _CODE_FLAGS) or (program == "eval" and self._interpreter)
        self._searching = (self._searching or program in _SEARCHES) and not ends_command(word)
        flag = flag_of(word)
        self._git = (self._git or program == "git") and not ends_command(word)
        self.names_commit = self._git or (
            flag is not None and name_parts(flag)[-1:] != [] and name_parts(flag)[-1] in _COMMIT_FLAGS
        )
        behind_option = self._previous in ("-e", "-x", "-E", "--env") and self._before != "set"
        self._before, self._previous = self._previous, word
        pair = pair_of(word)
        if pair is not None:
            self._must = not pair[2].strip() or (is_scheme(pair[2]) and is_secret_name(pair[1]))
        elif flag is not None:
            if is_secret_name(flag):
                self._name, self._must = flag, not may_be_switch(flag)
        elif word.rstrip(":").lower() in ("bearer", "authorization"):
            self._must = True
        elif word == "add_user" or (not (self._searching or behind_option) and self._is_bare_name(word)):
            self._must = self._bare = True
            self._all = word == "add_user" or name_parts(word)[0] in _VERBS

    def _is_bare_name(self, word: str) -> bool:
        """Whether a word that stands alone is the name of a secret: ``set password S``, ``setenv HF_TOKEN S``."""
        name = word.strip("'\"")
        name = name.rsplit("/", 1)[-1].lstrip(":_") if name.startswith("//") else name
        if re.fullmatch(r"[^\W\d][\w.-]{0,127}", name) is None:
            return False
        parts = name_parts(name)
        if name in BY_POSITION or parts[-1:] in (["pin"], ["pincode"]):  # of a board, more often
            return False
        if parts and parts[0] in _VERBS:
            return len(parts) > 1 and is_strong_name(parts[-1])
        if not is_secret_name(name):
            return False
        if len(parts) == 1:
            weak = parts[0] in _ALONE and self._in_words
            return weak or (is_strong_name(name) and parts[0] not in _ALONE_NOT)
        return is_strong_name(name) or "_" in name


def _redact_word(word: str, depth: int, *, is_code: bool) -> str:
    platform = _PLATFORM_FLAG.fullmatch(word)
    if platform is not None:
        return f"{platform[1]}:{MASK}"
    if not any(map(str.isspace, word)):
        return redact_text(word)
    in_words = is_code or _SHELL_LINE.search(word) is not None
    if is_code:
        pair = pair_of(word)
        # What ends the command around it is no part of the code.
        whole = pair is not None and not re.search(r"""["'();\n]""", pair[2].rstrip(";"))
        return redact_text(word, line_of_words=not whole)
    if depth >= _MAX_DEPTH:
        return redact_text(word)
    if not in_words:
        word = redact_text(word)
    # Quotes are taken off before the pairs in them are read: they nest, and what stands between two may be outside.
    flag = _FLAG_PAIR.match(word)
    start = flag.end() if flag is not None else 0
    line = word[:start] + _redact_line(word[start:], depth, in_words=in_words)
    return redact_text(line, line_of_words=in_words)


def _redact_line(text: str, depth: int, *, in_words: bool) -> str:
    """A word that is a whole command line (``sh -c "..."``): its own words are looked at like those of a command."""
    tokens = list(_TOKEN.finditer(text))
    words = [_unquoted(token.group()) for token in tokens]
    if words == [text]:
        return text
    kept: list[str] = []
    position = 0
    for token, word, redacted in zip(tokens, words, _redact_words(words, depth + 1, in_words=in_words), strict=False):
        # What holds no secret stays as it was written.
        kept += (text[position : token.start()], token.group() if redacted == word else redacted)
        position = token.end()
    return "".join([*kept, text[position:]])


def _unquoted(token: str) -> str:
    """The word that a shell makes of a token; the token itself where its quotes do not close."""
    if not any(quote in token for quote in "'\"\\"):
        return token
    try:
        return "".join(shlex.split(token))
    except ValueError:
        return token
