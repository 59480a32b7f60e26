"""Whether a name says that what it is given is a secret: of a flag, a variable, a field, a header.

A name is read as English reads a compound: its last word says what it is (``token-dropping-ratio`` is a ratio,
``hf_token`` a token), and the word before it which one (``pad_token``, ``sort-key``). Some words are a secret wherever
they stand (``password``), unless the last one says otherwise (``password-file``).
"""

from __future__ import annotations

import re
import unicodedata


def words_of(text: str) -> frozenset[str]:
    """The words of a list that is written as one text."""
    return frozenset(text.split())


# Secrets wherever they stand in a name, also run together with other words ("DBPASSWORD", "openaiapikey").
_INSIDE = (
    "password", "passwd", "passphrase", "passcode", "secret", "credential", "apikey", "accesskey", "secretkey",
    "privatekey", "authkey", "authtoken", "accesstoken", "authorization", "storepass", "keypass", "requirepass",
    "masterauth", "passwort", "kennwort", "motdepasse", "contrasena", "wachtwoord", "losenord", "adgangskode",
)  # fmt: skip
_NOT_INSIDE = ("secretar", "secreti", "secretor", "credentialed", "passwordless", "forbearer")
# Secrets where they are the last word of a name.
_STRONG_HEADS = frozenset(
    {"pwd", "pw", "creds", "jwt", "dsn", "pat", "sas", "sig", "signature", "cookie", "oauth", "bearer"}
) | {"senha", "haslo", "heslo", "parola", "salasana", "passord", "jelszo"}
_PINS = frozenset({"pin", "pincode"})
_PIN = re.compile(r"[0-9]{4,16}")
# The word for it in scripts that are not Latin.
_OTHER_SCRIPTS = ("парол", "密码", "密碼", "口令", "パスワード", "비밀번호", "암호", "κωδικός", "סיסמה", "كلمةالمرور")
_HEADS = ("token", "key", "auth", "pass", "login", "tokens", "keys")
_RUN_TOGETHER = ("token", "key", "pass", "auth")
_STRONG_ENDINGS = ("pwd", "cookie", "jwt", "dsn")
_OTHER_WORDS = frozenset({
    "monkey", "turkey", "donkey", "hockey", "jockey", "whiskey", "hotkey", "bypass", "compass", "encompass", "surpass",
    "trespass", "overpass", "underpass", "detoken", "subkey", "multikey", "multipass", "prepass",
})  # fmt: skip
# The last word that makes a name that of something about a secret, not of the secret.
_ABOUT = words_of(
    "file files filename path paths dir folder name names mode type types rate ratio policy env var variable provider "
    "store manager backend engine length len size count number num limit max min host hosts port url uri endpoint "
    "server class method methods format version ttl timeout lifetime expiry expiration expires duration age interval "
    "rotation enabled disabled required prompt stdin fd plugin driver namespace scope scopes field column prefix "
    "suffix strength check source ref arn region location mount volume opt options user username jar algorithm alg "
    "generator parallel task tasks py sh txt yaml yml json conf cfg ini toml pem log csv pt bin gz db html secure "
    "samesite domain hint rules service"
)
# Words behind the last one that say nothing: "HF_TOKEN_VALUE", "API_KEY_PROD".
_SILENT = words_of("value val string str text plain raw b base hex new old default prod production staging dev")
# What a token is of where it is no secret: the ones that language models read.
_TOKENS_OF_TEXT = words_of(
    "pad padding eos bos cls sep mask unk image images img video audio visual vision text word special stop start end "
    "prefix suffix additional begin first last next new max min num n total per input output draft prompt placeholder "
    "initializer init virtual forced register class tool think thinking control extra eot eod eom by split chat "
    "language lang task trigger modifier delimiter separator"
)
# What a key is of where it is no secret: the ones that tables, maps and sorting have.
_KEYS_OF_DATA = words_of(
    "sort primary foreign partition group label image img text txt input output prompt reward json chosen rejected "
    "routing cache best public data dict value row col column feature target query field index sample lookup join "
    "merge metric metrics monitor order class id batch state audio video answer question messages content response "
    "map shard cluster composite unique hot meta config param attr name node topic message event object s dataset "
    "checkpoint loss score weight weights model layer tensor embedding caption sequence seq num hash idempotency"
)
_PASSES = words_of("first second third single two multi one forward backward high low band render num n by per")
# Of several tokens or keys only these are secrets: all others count.
_SECRET_PLURALS = words_of("api access auth secret private refresh bearer session encryption ssh hf license")
# A first word that makes a name a switch about secrets, without a value.
_SWITCHES = words_of(
    "no disable skip ignore ask without allow hide show print verify check is has require need return reset"
)
_MAYBE_SWITCHES = words_of("use with enable save read set get prompt add")

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[a-z]+")
_WORDS_FOR_NONE = words_of("none null nil true false yes no on off auto default enabled disabled")
_WAYS_TO_AUTHENTICATE = words_of(
    "basic digest ldap kerberos oauth oauth2 oidc jwt munge spnego negotiate ntlm mtls tls ssl sasl scram plain "
    "simple password token saml iam anonymous sso bearer"
)
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w./+-]*|[\w-]+\.(?:pem|key|crt|pub|json)")
_REFERENCE = re.compile(r"\$[A-Z_][A-Z0-9_]*|\$\{\w+\}|%[A-Z_]+%|<[a-z_ -]+>")
_COUNT = re.compile(r"[0-9]{1,8}")
_COUNTS = frozenset({"num", "max", "min", "size", "len", "length", "count", "limit", "budget", "total"})

# Settings of storage stand for one account each, whose host ends their name: ``fs.azure.account.key.ACCOUNT.HOST``.
_TOP_LEVELS = frozenset({"net", "com", "org", "io", "cn", "us", "de", "local", "internal", "example"})
_NO_SETTING = frozenset({"auth", "oauth", "pass", "login"})

# Letters of other scripts that look like Latin ones.
_LOOKS = str.maketrans(
    "łаеорсухіјѕԁһкмтвнгԛԝɡıοαερτυνκιχγωΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТХІЈЅ",
    "laeopcyxijsdhkmtbnrqwgioaeptuvkixywABEZHIKMNOPTYXABEKMHOPCTXIJS",
)


def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or field of this name holds a secret."""
    return _kind(name) is not None


def is_strong_name(name: str) -> bool:
    """Whether the name says so without doubt: a word of it is one for secrets alone."""
    return _kind(name) == "strong"


def may_be_switch(name: str) -> bool:
    """Whether a flag of this secret name may stand without a value: ``--use-auth-token``."""
    return name_parts(name)[:1] != [] and name_parts(name)[0] in _MAYBE_SWITCHES


def is_secret(name: str, value: str) -> bool:
    """Whether `value`, given under `name`, is to be masked."""
    kind = _kind(name)
    if kind is None or _REFERENCE.fullmatch(value):
        return False
    bare = value.strip("\"'").lower()
    if kind == "pin":  # the others are pins of a board
        return _PIN.fullmatch(bare) is not None
    if kind == "strong":
        return not (bare in _WORDS_FOR_NONE or ("pwd" in name_parts(name)[-1:] and _PATH.fullmatch(value)))
    if bare in _WORDS_FOR_NONE or (bare == "value" and kind == "key"):
        return False
    if _COUNT.fullmatch(value) and any(part in _COUNTS for part in name_parts(name)):
        return False
    if kind == "pass":
        return not re.fullmatch(r"[0-9]", value)
    if kind == "auth":
        return bare not in _WAYS_TO_AUTHENTICATE and not _PATH.fullmatch(value)
    return not (kind == "key" and _PATH.fullmatch(value))


def name_parts(name: str) -> list[str]:
    """The words of a name in small Latin letters, without digits."""
    if not name.isascii():
        name = unicodedata.normalize("NFKD", name).translate(_LOOKS)
    return [part.lower() for part in _PARTS.findall(name[-256:])]


def _kind(name: str) -> str | None:
    """What kind of secret a name says: "strong", or the word at its end; None: none."""
    if not name.isascii() and any(word in name.lower() for word in _OTHER_SCRIPTS):
        return "strong"
    parts = name_parts(name)
    if not parts or parts[0] in _SWITCHES:
        return None
    joined = "".join(parts)
    inside = any(word in joined for word in _INSIDE) and not any(word in joined for word in _NOT_INSIDE)
    if inside:
        return None if parts[-1] in _ABOUT else "strong"
    while len(parts) > 1 and parts[-1] in _SILENT:
        parts.pop()
    if parts[-1] in _STRONG_HEADS or parts[-1].endswith(_STRONG_ENDINGS):
        return "strong"
    if parts[-1] in _PINS:
        return "pin"
    if name.count(".") > 3 and (setting := _kind_before_host(name)) is not None:
        return setting
    head, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if head not in _HEADS:
        ending = next((word for word in _RUN_TOGETHER if head.endswith(word)), None)
        if ending is None or head in _OTHER_WORDS:
            return None
        head, before = ending, head.removesuffix(ending)
    if head in ("tokens", "keys"):
        return head[:-1] if before in _SECRET_PLURALS else None
    other = {"token": _TOKENS_OF_TEXT, "key": _KEYS_OF_DATA, "pass": _PASSES}.get(head, frozenset[str]())
    return None if before in other else head


def _kind_before_host(name: str) -> str | None:
    """The kind of a setting whose name ends in the host that it is for; None: it is no such name."""
    labels = name[-256:].split(".")
    if labels[-1].lower() not in _TOP_LEVELS:
        return None
    for end in range(len(labels) - 3, 0, -1):
        last = name_parts(labels[end - 1])[-1:]
        if last and last[0] not in _NO_SETTING and labels[end].lower() not in _ABOUT:
            # Two labels at most: longer ones would be read as a host themselves.
            kind = _kind(".".join(labels[max(0, end - 2) : end]))
            if kind is not None:
                return kind
    return None
