"""What well-known programs take as a secret by its place: a short option's value, the word after `login` or `put`.

Names of options say nothing here (``mysql -p``, ``curl -u``), so the program has to be known. It may stand behind
others (``sudo``, ``srun``, ``env``), so every word is looked at, not the first alone.
"""

from __future__ import annotations

import re

from .environments import MASK, ends_command
from .secret_names import words_of

# Programs, and their short options that mean a secret: as a word of its own before it, or with it attached.
_OPTIONS: dict[str, frozenset[str]] = {
    program: words_of(options)
    for programs, options in (
        ("sshpass 7z rar unrar cqlsh useradd usermod groupadd groupmod", "-p"),
        ("mysql mysqldump mysqladmin mysqlimport mariadb mariadb-dump", "-p"),
        ("mongo mongosh mongodump mongorestore mongoimport mongoexport", "-p"),
        ("zip unzip sqlcmd mosquitto_pub mosquitto_sub ipmitool bcp", "-P"),
        ("ldapsearch ldapmodify ldapadd ldapdelete ldapwhoami ldapmodrdn", "-w"),
        ("snmpget snmpwalk snmpset snmpbulkwalk snmpgetnext snmptrap", "-A -X -c"),
        ("ldappasswd", "-w -s -a"),
        ("kaggle", "-v"),
        ("http https redis-cli", "-a"),
    )
    for program in programs.split()
}
# The same, of options that take no secret attached.
_OWN_OPTIONS = {
    "codecov": words_of("-t"),
    "expect": words_of("-c"),
    "az": words_of("-p"),
    "openssl": words_of("-k -K -pass -passin -passout"),
    "ssh-keygen": words_of("-N -P"),
    "curl": words_of("-b -E --cert --proxy-cert --cookie"),
}
# Programs whose secret is the word behind so many others: wpa_passphrase SSID SECRET.
BY_POSITION = {"wpa_passphrase": 1, "activate-refresh-token": 1}
_CERTIFICATE = re.compile(r"(--(?:proxy-)?cert=[^:]{0,1024}:).+", re.DOTALL)  # curl --cert=FILE:SECRET
# Behind a user's name -p is a password, but for programs that have a port, a process or a partition there.
_USERS = frozenset({"-u", "-U", "--user", "--username"})
_PORT = re.compile(r"[\d:./,-]{1,7}|[\d.]{1,15}:\d{1,5}(?::\d{1,5})?(?:/\w+)?|\d{1,5}:\d{1,5}(?:/\w+)?")
_PARTITIONS = words_of(
    "squeue sacct sinfo srun sbatch salloc scancel sstat docker podman nerdctl ps top pgrep pkill lsof htop mkdir cp "
    "ssh scp sudo tmux screen qsub systemd-run systemctl journalctl"
)
# The words after their `login` may be a key.
_LOGINS = frozenset({"wandb", "weave", "comet", "huggingface-cli", "hf", "neptune", "openai", "ngc", "vault"})
_UNSEALS = frozenset({"unseal", "unlock", "authtoken", "add-authtoken"})
# `gh secret set NAME`, `vault kv put PATH A=S`, `heroku config:set A=S`: what they store is secret, whatever its name.
_STORES = frozenset({"secret", "secrets", "kv", "config:set", "put-parameter", "put-secret-value", "create-secret"})
_STORE = frozenset({"set", "put", "create", "patch", "write"}) | _STORES - {"secret", "secrets", "kv"}
_STORED_VALUE = frozenset({"-b", "--body", "--value", "--plaintext", "--string-value", "--secret-string"})
# Programs that take USER/PASSWORD@DATABASE.
_ORACLE = frozenset({"sqlplus", "sqlldr", "expdp", "impdp", "exp", "imp", "rman"})
_ORACLE_USER = re.compile(r"([\w#$]{1,64}/)[^@\s]+(@.*)?", re.DOTALL)
# A flag as programs write theirs; what merely begins with a dash may be a secret.
PLAIN_FLAG = re.compile(r"--?[a-z][a-z0-9]{0,31}(?:[-_.][a-z0-9]{1,31}){0,8}(?:=.*)?|-[A-Za-z]", re.DOTALL)
# The word behind PROGRAM login, where it is no registry or address.
_LOGIN_NAME = re.compile(r"(?!https?://|[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:/|$)|[\w-]+:\d+)[^-].*", re.DOTALL)

_USER_FLAGS = frozenset({"-u", "--user", "-U", "--proxy-user"})
_USER_IN_CLUSTER = re.compile(r"-[A-Za-z#]*[uU]")  # curl -su user:password
# Bounded: a word of nothing but "u" would be tried from each of them on.
_USER_OPTION = re.compile(r"((?:-[A-Za-z]{0,15}u|--user=|--proxy-user=)[^\s:/@=-][^\s:/@]{0,255}):.+", re.DOTALL)
# What -k counts (top-k, folds) is a short number without leading zeros; all other digits may be a key.
_COUNT = re.compile(r"0|[1-9][0-9]{0,4}|0?\.[0-9]{1,4}|[1-9][0-9]?\.[0-9]{1,2}")
# Programs whose -k is documented as something else: a sort key, a selection, a worker class, "keep going".
_OTHER_K = words_of(
    "sort pytest py.test gunicorn ninja make gmake cmake ctest ncu lmp bwa parallel top tmux ps ls df du nvcc ab"
)
# Programs whose --user is USER:GROUP.
_USER_AND_GROUP = frozenset({"docker", "podman", "nerdctl", "chown", "install", "runuser", "setpriv", "chroot"})
# A key attached to -k. Few letters are a cluster of options, small ones a longer option's name.
_KEY_ATTACHED = re.compile(r"(-k=?)(?![A-Za-z]{1,7}$|[a-z_-]+$|[A-Za-z][\w.-]*=)(.+)", re.DOTALL)
# "aws configure set aws_secret_access_key VALUE": a bare name of several parts, one of which can only be a secret's.
_BARE_NAME = re.compile(r"(?i)(?=\w*(?:secret|password|passwd|access_key|api_key))[a-z]\w*_\w+")


_SPECIAL = frozenset({"mc", "lftp", "poetry", "htpasswd", "smbclient", "redis-cli", "chpasswd", "vncpasswd", *_ORACLE})


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
            self._has_user = True
            self._attached |= {"-p"}
            self._own |= {"-p", "-t"} if "glab" in self._programs else {"-p"}
        elif name in _UNSEALS:
            self._after_login = True
        elif name in _OPTIONS or name in _OWN_OPTIONS:
            self._attached |= _OPTIONS.get(name, frozenset())
            self._own |= _OPTIONS.get(name, frozenset()) | _OWN_OPTIONS.get(name, frozenset())
        elif name in BY_POSITION:
            self._before_secret = BY_POSITION[name]
        elif word in _USERS and not (self._programs & _PARTITIONS or previous.startswith("python")):
            self._has_user = True
        if self._storing:
            self._stored += not word.startswith("-")
        elif name in _STORE and (self._programs | {name}) & _STORES:
            self._storing = True
        self._positional = 0 if name == "htpasswd" else self._positional + (not word.startswith("-"))
        self._programs.add(name)
        self._count += 1
        if ends_command(word):
            self._begin()
        return masked

    def _begin(self) -> None:
        self._previous = ""
        self._programs: set[str] = set()
        self._own: frozenset[str] = frozenset()
        self._attached: frozenset[str] = frozenset()
        self._after_login = False
        self._storing = False
        self._stored = 0  # words after the one that stores
        self._positional = 0  # words after htpasswd that are no options
        self._batch = ""  # htpasswd's options with -b
        self._count = 0
        self._before_secret: int | None = None  # words until the one that is a secret by its position
        self._has_user = False  # a name of a user or `login` came: -p is a password

    def _masked(self, word: str, previous: str) -> str | None:
        if not word.rstrip(";&|"):
            return None
        plain_flag = PLAIN_FLAG.fullmatch(word) is not None
        is_flag = word.startswith("-")
        at_login = previous == "login" and self._count == 2  # PROGRAM login SECRET
        if previous in self._own or (self._storing and previous in _STORED_VALUE):
            return MASK
        if self._has_user and previous in ("-p", "-P") and not plain_flag and not _PORT.fullmatch(word):
            return MASK
        if (self._after_login or at_login) and is_flag and not plain_flag:
            return MASK
        if self._before_secret is not None and not plain_flag:
            self._before_secret -= 1
            if self._before_secret < 0:
                self._before_secret = None
                return MASK
        known = self._of_special(word, previous) if self._programs & _SPECIAL else None
        if known is None and self._storing:
            known = self._of_store(word)
        if known is not None:
            return known
        if is_flag and (plain_flag or previous != "-k"):
            return self._of_flag(word)
        if self._after_login or _BARE_NAME.fullmatch(previous) or (at_login and _LOGIN_NAME.fullmatch(word)):
            return MASK
        return self._behind_short_flag(word, previous)

    def _of_flag(self, word: str) -> str | None:
        """A flag with its value attached."""
        certificate = _CERTIFICATE.fullmatch(word) if "curl" in self._programs else None
        if certificate is not None:
            return certificate[1] + MASK
        user = _USER_OPTION.fullmatch(word)
        if user is not None and not self._programs & _USER_AND_GROUP:
            return f"{user[1]}:{MASK}"
        key = _KEY_ATTACHED.fullmatch(word)
        if key is not None and not _COUNT.fullmatch(key[2]) and not self._programs & _OTHER_K:
            return key[1] + MASK
        return word[:2] + MASK if len(word) > 2 and word[:2] in self._attached else None

    def _behind_short_flag(self, word: str, previous: str) -> str | None:
        """The word after -k, where it is no count (top-k) and no address (curl -k), and after -u."""
        if previous == "-k" and not self._programs & _OTHER_K:
            return None if _COUNT.fullmatch(word) or "://" in word else MASK
        if previous in _USER_FLAGS and self._programs & _USER_AND_GROUP:
            return None
        if previous in _USER_FLAGS or ("curl" in self._programs and _USER_IN_CLUSTER.fullmatch(previous)):
            user_name, separator, _ = word.partition("%" if previous == "-U" and "%" in word else ":")
            return f"{user_name}{separator}{MASK}" if separator and "://" not in word else None
        return None

    def _of_store(self, word: str) -> str | None:
        """A word behind `secrets set`: NAME=VALUE, or the value behind a name."""
        name, equals, _ = word.partition("=")
        if self._stored and not PLAIN_FLAG.fullmatch(word):
            return MASK
        if equals and not name.startswith("-"):
            return f"{name}={MASK}"
        return None

    def _of_special(self, word: str, previous: str) -> str | None:
        """A word of a program that takes its secret in a way of its own."""
        if "htpasswd" in self._programs:  # htpasswd -b FILE USER PASSWORD, -nb USER PASSWORD
            if word.startswith("-") and not self._positional and "b" in word:
                self._batch = word
            first = 1 if "n" in self._batch else 2
            return MASK if self._batch and self._positional >= first else None
        if "vncpasswd" in self._programs and previous == "-f":
            return None if word[:1] in "<>" else MASK
        if "smbclient" in self._programs:  # smbclient //HOST/SHARE PASSWORD
            return MASK if previous.startswith("//") and not PLAIN_FLAG.fullmatch(word) else None
        if "redis-cli" in self._programs and previous.upper() == "AUTH":
            return MASK
        if "chpasswd" in self._programs and ":" in word:
            return word.partition(":")[0] + ":" + MASK
        if "lftp" in self._programs and previous in ("-u", "--user"):  # lftp -u USER,PASSWORD
            return word.partition(",")[0] + "," + MASK if "," in word else None
        if self._programs >= {"poetry", "config"}:  # poetry config http-basic.REPOSITORY USER PASSWORD
            return MASK if previous != "config" and not PLAIN_FLAG.fullmatch(word) and word != "config" else None
        if "mc" in self._programs and "alias" in self._programs:  # mc alias set NAME URL USER PASSWORD
            self._batch = self._batch or ("mc" if "://" in previous else "")
            return MASK if self._batch and not PLAIN_FLAG.fullmatch(word) else None
        oracle = _ORACLE_USER.fullmatch(word) if self._programs & _ORACLE else None
        return None if oracle is None else f"{oracle[1]}{MASK}{oracle[2] or ''}"
