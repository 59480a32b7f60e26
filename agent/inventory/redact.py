"""Secrets taken out of command lines before anything keeps them.

Better a harmless word lost than a key kept: what looks like a secret by its name or by its form becomes ``***``.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator, Sequence

from .redact_environ import MASK, without_environments
from .redact_programs import Places
from .text import clean_text

COMMAND_LIMIT = 1024
# More than this is not looked at: a hostile command line must not cost time, and only COMMAND_LIMIT is kept.
_WORD_LIMIT, _TOTAL_LIMIT = 2048, 8192

# Words that mark a secret wherever they stand in a name ("openai_api_key", "DBPASSWORD", "X-Auth-Token").
_INSIDE = ("password", "passwd", "passphrase", "secret", "credential", "apikey", "accesskey", "privatekey", "bearer")
# Words that mark one where a part of the name is, or ends with, them ("hftoken", "auth", "key").
_ENDINGS = ("key", "keys", "token", "pass", "pwd", "auth", "authorization", "cookie", "jwt", "dsn", "pat", "signature")
_EXACT = frozenset({"sig", "sas", "pw", "creds", "login"})
# Parts of names that count or measure: with a short number, "num-key-value-heads" and "key-size" hold no secret.
_COUNTS = frozenset({"num", "max", "min", "size", "len", "length", "count", "heads", "head", "dim", "limit", "budget"})
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[a-z]+")

_PEM = re.compile(r"-----BEGIN [^-]*-----.*?(?:-----END [^-]*-----|$)", re.DOTALL)
_WHOLE_PAIR = re.compile(r"(-{0,2}(?P<name>[A-Za-z_][\w.-]*)=)(?P<value>.+)", re.DOTALL)
_URL_USER = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,31}://)(?:[^\s/@]{0,512}@|[^\s/:@]{0,256}:[^\s@]{0,512}@)+"
)
_HEADER = re.compile(
    r"(?i)\b(?P<name>authorization|proxy-authorization|cookie|x-[a-z-]{0,40}(?:key|token|auth))\s*:\s*\S.*"
)
_BEARER = re.compile(r"(?i)\b(?P<name>bearer)\s+[A-Za-z0-9._~+/=-]{8,}")
_NAME = re.compile(r"""(?P<name>[A-Za-z_][\w.-]{0,63})(?:["'\\\])]{0,8}\s{0,8}[=:]|["'\\]{1,8}\s{0,8},)\s{0,8}""")
_VALUE = re.compile(r"""\\"[^"\\]*|"[^"]*"?|'[^']*'?|[^\s,;&"'}]+""")
_FLAG_VALUE = re.compile(r"(?P<flag>(?<![\w-])--?(?P<name>[A-Za-z][\w.-]{0,63}))(?P<space>\s+)(?P<value>[^\s-]\S*)")
# Forms of well-known tokens: Hugging Face, OpenAI and Anthropic, GitHub, GitLab, Slack, AWS, Google, NVIDIA, JWT, PEM,
# Vault, Databricks, DigitalOcean, SendGrid, Stripe, npm, PyPI, Groq, Replicate.
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}"
    r"|glpat-[\w-]{8,}|hvs\.[\w-]{8,}|dapi[0-9a-f]{32}|dop_v1_\w{16,}|SG\.[\w-]{8,}\.[\w-]{8,}|(?:sk|rk)_live_\w{8,}"
    r"|npm_\w{16,}|pypi-[\w-]{16,}|ya29\.[\w-]{8,}|gsk_\w{16,}|r8_\w{16,}|xox[abpres]-[\w-]{8,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|nvapi-[\w-]{8,}"
    r"|eyJ[\w-]{8,}(?:\.[\w-]+)*)"
)
_PLAIN_FLAG = re.compile(r"--?[a-z][a-z0-9]{0,31}(?:[-_.][a-z0-9]{1,31}){0,8}(?:=.*)?|-[A-Za-z]", re.DOTALL)
# A word of a shell's line, quotes and all.
_TOKEN = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\]|['"\\])+""", re.DOTALL)
_MAX_DEPTH = 3  # lines within quotes within lines
_HEX = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{32,}(?![0-9A-Za-z])")
_BLOB = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_RUN = re.compile(r"[A-Za-z0-9+]{20,}")


def redact_command(argv: Sequence[str], limit: int = COMMAND_LIMIT) -> str:
    """The command as one line without secrets, control characters stripped, cut to `limit` characters."""
    return clean_text(" ".join(_redact_words(argv, 0)), limit)


def _redact_words(argv: Sequence[str], depth: int) -> Iterator[str]:
    """One word for each of `argv`, up to what is looked at."""
    masking = ""
    total = 0
    places = Places()
    for given in without_environments(argv):
        total += len(given)
        if total > _TOTAL_LIMIT:
            yield "…"
            return
        word = _plain(given) if len(given) <= _WORD_LIMIT else "…"
        by_place = places.mask(word)
        is_flag = word.startswith("--") or re.fullmatch(r"-[A-Za-z]+(?:[\w.-]*)", word) is not None
        if masking and not (is_flag and _PLAIN_FLAG.fullmatch(word)):
            yield MASK if is_secret(masking, word) else word
            continue
        yield _redact_line(redact_text(word), depth) if by_place is None else by_place
        # A flag may take several values (vLLM's --api-key does): all words up to the next flag go.
        masking = word.lstrip("-") if is_flag and "=" not in word and is_secret_name(word) else ""


def _redact_line(text: str, depth: int) -> str:
    """A word that is a whole command line (``sh -c "..."``): its own words are looked at like those of a command."""
    if depth >= _MAX_DEPTH or not any(map(str.isspace, text)):
        return text
    tokens = list(_TOKEN.finditer(text))
    words = [_unquoted(token.group()) for token in tokens]
    if words == [text]:
        return text
    kept: list[str] = []
    position = 0
    for token, word, redacted in zip(tokens, words, _redact_words(words, depth + 1), strict=False):
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


def _plain(word: str) -> str:
    """Full-width and other look-alike forms as plain letters, and without what is not seen: both hide names."""
    if word.isascii() and word.isprintable():
        return word
    folded = unicodedata.normalize("NFKC", word)
    return "".join(c for c in folded if c in "\t\n\r" or unicodedata.category(c) not in ("Cc", "Cf"))


def redact_text(text: str) -> str:
    """One word or a line of free text without what looks like a secret."""
    text = _plain(text)
    whole = _WHOLE_PAIR.fullmatch(text)
    if whole is not None and is_secret(whole["name"], whole["value"]):
        return whole[1] + MASK
    text = _PEM.sub(MASK, text)
    text = _URL_USER.sub(lambda m: f"{m['scheme']}{MASK}@", text)
    text = _HEADER.sub(lambda m: f"{m['name']}: {MASK}", text)
    text = _BEARER.sub(lambda m: f"{m['name']} {MASK}", text)
    text = _mask_pairs(text)
    text = _FLAG_VALUE.sub(_mask_flag, text)
    text = _KNOWN.sub(MASK, text)
    text = _HEX.sub(MASK, text)
    return _BLOB.sub(_mask_blob, text)


def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or field of this name holds a secret."""
    parts = _parts(name)
    joined = "".join(parts)
    if any(word in joined for word in _INSIDE):
        return True
    return any(part in _EXACT or part.endswith(_ENDINGS) for part in parts)


def is_secret(name: str, value: str) -> bool:
    """Whether `value`, given under `name`, is to be masked."""
    counts = value.isdecimal() and len(value) <= 8 and any(part in _COUNTS for part in _parts(name))
    return is_secret_name(name) and not counts


def _parts(name: str) -> list[str]:
    return [part.lower() for part in _PARTS.findall(name)]


def _mask_pairs(text: str) -> str:
    """``name=value`` and ``name: value``, also where the value of one holds the next (``--env=HF_TOKEN=abc``)."""
    kept: list[str] = []
    position = 0
    while (name := _NAME.search(text, position)) is not None:
        value = _VALUE.match(text, name.end())
        kept.append(text[position : name.end()])
        position = name.end()
        if value is not None and is_secret(name["name"], value.group()):
            kept.append(MASK)
            position = value.end()
    return "".join([*kept, text[position:]])


def _mask_flag(match: re.Match[str]) -> str:
    secret = is_secret(match["name"], match["value"])
    return f"{match['flag']}{match['space']}{MASK}" if secret else match.group()


def _mask_blob(match: re.Match[str]) -> str:
    """Random text has upper case, lower case and digits in one long run; words and paths seldom do."""
    blob = match.group()
    if any(map(_looks_random, _RUN.findall(blob))):
        return MASK
    solid = len(blob) >= 40 and "-" not in blob and "_" not in blob
    return MASK if solid and _looks_random(blob) and not blob.startswith("/") else blob


def _looks_random(text: str) -> bool:
    return any(map(str.isupper, text)) and any(map(str.islower, text)) and any(map(str.isdigit, text))
