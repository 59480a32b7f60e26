"""Secrets inside one piece of text: pairs, addresses, headers, code, documents, and values known by their form.

Every pattern is bounded or cannot be tried twice from one place, so that a hostile text costs time by its length only.
"""

from __future__ import annotations

import re
import unicodedata

from .environments import MASK
from .secret_names import is_secret, is_secret_name, is_strong_name

TEXT_LIMIT = 8192
"""Characters of a text that are looked at; the rest is cut off."""
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_PLAIN_DASHES = str.maketrans(dict.fromkeys(_DASHES, "-"))

# The name of a pair that fills a word: what stands before it ("--", "+", "/") and a path of names ("a.b", "//h/:b").
_PAIR_NAME = re.compile(r"[^\w\s]{0,4}(?P<name>[^\W\d][\w.:/@-]{0,127}?)[\"'\])]{0,2}\s{0,4}(?::=|=>|->|==|[=:|])")
_PEM = re.compile(r"-----BEGIN [^-]*-----.*?(?:-----END [^-]*-----|$)", re.DOTALL)
_AGE_KEY = re.compile(r"AGE-SECRET-KEY-\w+")
_URL_USER = re.compile(r"(?P<scheme>(?<=:)//|(?<![\w:])//)(?:[^\s/@]{0,512}@|[^\s/:@]{0,256}:[^\s@]{0,512}@)+")
_USER_AT = re.compile(r"(?<![\w@.-])(?P<user>[\w.-]{1,64}):[^\s/@:]{1,128}(?=@(?!sha256:)(?:[A-Za-z]|\d{1,3}\.))")
_ORACLE_USER = re.compile(r"(?P<user>(?<![\w/.-])(?:jdbc:oracle:\w{1,8}:)?\w{1,64}/)[^\s/@]{1,128}(?=@)")
_ORACLE = re.compile(r"jdbc:oracle:|sqlplus|@//")
# Slack, Discord, Teams, Telegram; conda's channels have their token behind /t/.
_HOOK = re.compile(
    r"(?P<start>hooks\.slack\.com/[a-z]{1,16}/|/api/webhooks/\d{1,32}/|api\.telegram\.org/(?:file/)?bot|://[^\s/]{1,256}/t/)[^\s/\"'?]+"
    r"(?:/(?:B\w+/\w+))?"
)
_HEADER = re.compile(
    r"(?i)\b(?P<name>(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]{0,40}(?:key|token|auth|secret))"
    r"\s{0,8}[:=]\s{0,8}\S.*"
)
_BEARER = re.compile(r"(?i)\b(?P<name>bearer)\s+[A-Za-z0-9._~+/=-]{4,}")
_BASIC = re.compile(r"\b(?P<name>Basic)\s+(?=[A-Za-z0-9+/]*[A-Z0-9+/=])[A-Za-z0-9+/]{8,}={0,2}")
_NAME = re.compile(
    r"""(?<!\w)(?<!\w[.-])(?P<name>\w[\w.-]*+)"""
    r"""(?:["'\\\])]{0,8}\s{0,8}(?::\s{0,4}\w{1,16}\s{0,4}=(?!=)|:=|=>|->|==|[=:])|["'\\]{1,8}\s{0,8},|\|)\s{0,8}"""
)
_QUOTED = r"""\\"(?:[^\\]|\\(?!"))*|"{3}.*?(?:"{3}|$)|'{3}.*?(?:'{3}|$)|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?"""
_STRING = re.compile(rf"(?:[rRbBfFuU]{{1,2}}(?=[\"']))?(?:{_QUOTED})", re.DOTALL)
_IN_ADDRESS = re.compile(r"[^\s&#\"'<>]+")
_TO_DELIMITER = re.compile(r"""[^\s,;&"'}<>)]+""")
_TO_LINE_END = re.compile(r"[^\n]+?(?=\\n|\n|$)")
_NAME_THEN_STRING = re.compile(
    rf"(?<!\w)(?<!\w[.-])(?P<name>\w[\w.-]*+)(?P<space>\s{{1,8}}(?:(?:by|is)\s{{1,8}})?)(?:{_QUOTED})", re.DOTALL
)
_IDENTIFIED = re.compile(rf"(?is)(?P<start>\bidentified\b[^'\"]{{0,80}}?\b(?:by|as)\s{{1,8}})(?:{_QUOTED})")
_CALL = re.compile(r"(?<!\w)(?<!\w\.)(?P<name>\w[\w.]*+)\(")
_CALLS = frozenset({"login", "auth", "authenticate", "log_in", "signin"})
_ELEMENT = re.compile(r"(?P<start><(?P<name>[\w.:-]{1,64})(?:\s[^<>]{0,256})?>)[^<]+")
_NAMED = re.compile(r"""["'>=](?P<name>[\w.:-]{2,64})["'<,;]""")
_ITS_VALUE = re.compile(
    r"""(?i)[^\w]{0,24}(?:/?\w{1,16}>\s{0,8}<)?(?:\w{1,32}(?:\[\d{1,4}\])?\.){0,4}\b(?:string_?)?val(?:ue)?\b["'>\s]{0,4}[=:]?\s{0,4}"""
)
_FLAG_VALUE = re.compile(r"(?P<flag>(?<![\w-])--?(?P<name>[^\W\d][\w.-]{0,63}))(?P<space>\s+)(?P<value>[^\s-]\S*)")
# Forms of well-known tokens: Hugging Face, OpenAI and Anthropic, GitHub, GitLab, Slack, AWS, Google, NVIDIA, JWT,
# Vault, Databricks, DigitalOcean, SendGrid, Stripe, npm, PyPI, Groq, Replicate, Docker.
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}"
    r"|glpat-[\w-]{8,}|hvs\.[\w-]{8,}|dapi[0-9a-f]{32}|dop_v1_\w{16,}|SG\.[\w-]{8,}\.[\w-]{8,}|(?:sk|rk)_live_\w{8,}"
    r"|npm_\w{16,}|pypi-[\w-]{16,}|ya29\.[\w-]{8,}|gsk_\w{16,}|r8_\w{16,}|xox[a-z]-[\w-]{8,}|xapp-[\w-]{16,}|pat-\w{2,4}-[\w-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|tskey-[\w-]{8,}|nvapi-[\w-]{8,}|dckr_pat_[\w-]{8,}|eyJ[\w-]{8,}(?:\.[\w-]+)*)"
)
_HEX = re.compile(r"(?<![0-9A-Za-z])(?<!sha256:)[0-9a-fA-F]{32,}(?![0-9A-Za-z])")
_BLOB = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_RUN = re.compile(r"[A-Za-z0-9+]{20,}")
_WORDS_IN = re.compile(r"[A-Z]?[a-z]{3,}")
_CALL_LIMIT = 512
_SCHEMES = frozenset(
    {"basic", "bearer", "token", "digest", "apikey", "api-key", "key", "negotiate", "ntlm", "aws4-hmac-sha256"}
)


def plain_letters(word: str) -> str:
    """Full-width and other look-alike forms as plain letters, and without what is not seen: both hide names."""
    if word.isascii() and word.isprintable():
        return word
    folded = unicodedata.normalize("NFKC", word)
    return "".join(c for c in folded if c in "\t\n\r" or unicodedata.category(c) not in ("Cc", "Cf"))


def flag_of(word: str) -> str | None:
    """The name of a flag that stands alone (``--api-key``); None: `word` is something else."""
    dashed = word[:4].translate(_PLAIN_DASHES) + word[4:]
    found = re.fullmatch(r"-{1,3}([^\W\d][\w.-]{0,127})", dashed)
    return found[1] if found else None


def pair_of(word: str) -> tuple[str, str, str] | None:
    """What stands up to the value, the name and the value, where `word` is one pair with a secret's name.

    Also where it is the value of another pair (``--config=password=S``) or behind a path (``//host/:_authToken=S``).
    """
    position = 0
    for _ in range(4):
        found = _PAIR_NAME.match(word, position)
        if found is None:
            return None
        name = re.split(r"[/:@]", found["name"])[-1]
        if word.startswith(("-D", "-P", "-o")) and not is_secret_name(name):  # java -Dname=value
            name = name[1:]
        position = found.end()
        if is_secret_name(name):
            return word[:position], name, word[position:]
    return None


def is_scheme(value: str) -> bool:
    """Whether a header's value is only its first word: the secret is the word after it."""
    return value.strip().lower() in _SCHEMES


def redact_text(text: str, *, line_of_words: bool = False) -> str:
    """One word or a text without what looks like a secret.

    `line_of_words`: a blank ends a value that is not quoted, as for a shell or in code; else the end of its line does.
    """
    if len(text) > TEXT_LIMIT:
        text = text[:TEXT_LIMIT] + "…"
    text = plain_letters(text)
    pair = pair_of(text)
    if pair is not None and not (line_of_words and any(map(str.isspace, text))) and is_secret(pair[1], pair[2].strip()):
        return pair[0] + (" " if pair[2][:1] == " " else "") + MASK
    text = _PEM.sub(MASK, text)
    text = _AGE_KEY.sub(MASK, text)
    text = _URL_USER.sub(lambda m: f"{m['scheme']}{MASK}@", text)
    text = _USER_AT.sub(lambda m: f"{m['user']}:{MASK}", text)
    if _ORACLE.search(text):
        text = _ORACLE_USER.sub(lambda m: m["user"] + MASK, text)
    text = _HOOK.sub(lambda m: m["start"] + MASK, text)
    text = _HEADER.sub(lambda m: f"{m['name']}: {MASK}", text)
    text = _BEARER.sub(lambda m: f"{m['name']} {MASK}", text)
    text = _BASIC.sub(lambda m: f"{m['name']} {MASK}", text)
    text = _mask_named_values(text)
    text = _ELEMENT.sub(lambda m: m["start"] + MASK if is_secret_name(m["name"]) else m.group(), text)
    text = _mask_calls(text)
    text = _mask_pairs(text, line_of_words)
    text = _NAME_THEN_STRING.sub(_mask_string, text)
    text = _IDENTIFIED.sub(lambda m: m["start"] + MASK, text)
    text = _FLAG_VALUE.sub(_mask_flag, text)
    text = _KNOWN.sub(MASK, text)
    text = _HEX.sub(MASK, text)
    return _BLOB.sub(_mask_blob, text)


def _mask_pairs(text: str, line_of_words: bool) -> str:
    """``name=value`` and ``name: value``, also where the value of one holds the next (``--env=HF_TOKEN=abc``)."""
    kept: list[str] = []
    position = 0
    address = text.find("://")
    while (name := _NAME.search(text, position)) is not None:
        kept.append(text[position : name.end()])
        position = name.end()
        if not is_secret_name(name["name"]):
            continue
        end = _end_of_value(text, position, line_of_words, in_address=0 <= address < position)
        value = text[position:end]
        if name["name"] == "key" and line_of_words and value[:1] not in ("'", '"', "\\"):
            continue  # sorted(x, key=len)
        if value and is_secret(name["name"], value) and value != MASK:
            kept.append(MASK)
            position = end
    return "".join([*kept, text[position:]])


def _end_of_value(text: str, start: int, line_of_words: bool, *, in_address: bool) -> int:
    string = _STRING.match(text, start)
    if string is not None:
        return string.end()
    if text[start : start + 1] in ("(", "[", "{"):
        closing = {"(": ")", "[": "]", "{": "}"}[text[start]]
        end = text.find(closing, start)
        return len(text) if end < 0 else end + 1
    pattern = _IN_ADDRESS if in_address else _TO_DELIMITER if line_of_words else _TO_LINE_END
    value = pattern.match(text, start)
    return start if value is None else value.end()


def _mask_calls(text: str) -> str:
    """``login('S')``, ``auth("alice", "S")``: every string that a function about secrets is given."""
    kept: list[str] = []
    position = 0
    for call in _CALL.finditer(text):
        name = call["name"].rpartition(".")[2]
        if call.end() < position or not (name.lower() in _CALLS or is_strong_name(name) or is_secret_name(name)):
            continue
        end = text.find(")", call.end(), call.end() + _CALL_LIMIT)
        end = min(len(text), call.end() + _CALL_LIMIT) if end < 0 else end
        kept += (text[position : call.end()], _STRING.sub(MASK, text[call.end() : end]))
        position = end
    return "".join([*kept, text[position:]])


def _mask_named_values(text: str) -> str:
    """``{"name": "API_KEY", "value": "S"}`` and ``<add key="ApiKey" value="S"/>``: the name is itself a value."""
    kept: list[str] = []
    position = 0
    for named in _NAMED.finditer(text):
        if named.start() < position or not is_secret_name(named["name"]):
            continue
        label = _ITS_VALUE.match(text, named.end())
        if label is None:
            continue
        value = _STRING.match(text, label.end()) or re.compile(r"[^<,}\s]+").match(text, label.end())
        if value is not None:
            kept += (text[position : label.end()], MASK)
            position = value.end()
    return "".join([*kept, text[position:]])


def _mask_string(match: re.Match[str]) -> str:
    return f"{match['name']}{match['space']}{MASK}" if is_strong_name(match["name"]) else match.group()


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
    in_words = sum(map(len, _WORDS_IN.findall(text)))
    if in_words > 0.6 * len(text):  # p2pBandwidthLatencyTest
        return False
    return any(map(str.isupper, text)) and any(map(str.islower, text)) and any(map(str.isdigit, text))
