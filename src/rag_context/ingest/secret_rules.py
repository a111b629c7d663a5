"""What secrets look like: by their own shape, or by the place where they stand; and what is no placeholder of one.

Tokens of known shape go wherever they stand. A value assigned to a name like `password` goes only if it looks like a
secret: quoted or in the form of an environment file, long enough, mixed characters, and no placeholder. Hashes and
UUIDs under any other name stay. All repeats are bounded or possessive.
"""

import base64
import binascii
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MIN_BITS_OF_KEY = 3.5
"""Shannon entropy of a value that only `_KEY` in its name tells; twenty random letters and digits have 4."""

MIN_BITS_PER_CHAR = 2.5
"""Shannon entropy of an assigned value; eight distinct characters have 3, `aaaabbbb` has 1."""

_FILLER = re.compile(r"[xX*.•…0#-]{4,}+|\.\.\.")
_REFERENCE = re.compile(
    r"[<>{}…]|\$[({]|%\(|%\w+%|\[REDACTED|^\$(?!\w+\$)|^process\.env|^os\.environ|^secrets\."
    r"|^@[\w.]+@$|^[\w.]+\(.*\)$|^ENC[\[(]|^!\w+$|::|^arn:"
    r"|^[A-Za-z][A-Za-z0-9+.-]*://|^[a-z]{2,12}:[a-z0-9_.-]*/"  # op://vault/item, vault:secret/db
    r"|^~?/?[a-z0-9_.-]*(?:/[a-z0-9_.-]+)+/?$"  # /run/secrets/db_password
)
"""Values that name the place of a secret: variables, templates, addresses, paths."""

_NAMES = re.compile(r"^\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")
_CAMEL = re.compile(r"(?:[a-z]+|[A-Z][a-z]+)\d{0,4}(?:[A-Z][a-z]+\d{0,4}|[A-Z]\d)*")
_RUNS = re.compile(r"[a-z]+|[A-Z]+|\d+")
_MENTION = re.compile(
    r"^tiger$|^\[password\]?$|example|placeholder|change[-_ ]?(?:me|it|this)|your[-_ ]?|dummy|redacted|insert|replace"
    r"|sample|todo|foobar"
    r"|^(?:my|the|some|a|test|new|old|db|user|admin|root|api|app|access|auth|client|current)?[-_. ]?"
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|key|credentials?)"
    r"[-_. ]?(?:here|goes|value|key|field|string|hash)?[-_]?(?:1|12|123|1234|12345)?!?$"
    r"|(?-i:[A-Za-z0-9](?:Private|Public|Secret|Access|Api)?(?:Key|Token|Password|Secret|Credentials?)$)"
    r"|(?-i:^[A-Z]+(?:_[A-Z]+)+$)",
    re.IGNORECASE,
)
_LETTER, _DIGIT, _UPPER, _LOWER = map(re.compile, (r"[^\W\d_]", r"\d", r"[A-Z]", r"[a-z]"))
_SYMBOL = re.compile(r"[!@#$%^&*+=~?]")
_HASH = re.compile(
    r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{128}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$"
)
_PASSPHRASE = re.compile(r"[a-z]{3,}(?:[-_. ][a-z]{3,}){3,}", re.IGNORECASE)
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{40}")


def is_no_filler(value: str) -> bool:
    """For tokens of known shape: everything but `ghp_xxxx...`."""
    return not _FILLER.search(value)


def is_no_example(value: str) -> bool:
    """For tokens of a vendor who prints `...EXAMPLE` in its own documentation."""
    return "EXAMPLE" not in value and is_no_filler(value)


def is_mixed(value: str) -> bool:
    """For shapes that a dotted name might have too."""
    return all(kind.search(value) for kind in (_DIGIT, _UPPER, _LOWER)) and is_no_filler(value)


def is_login(value: str) -> bool:
    """For `user:password` in Base64."""
    try:
        return b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


def is_random_key(value: str) -> bool:
    """For `sk-...`, which is also how names of styles and packages begin."""
    body = value.removeprefix("sk-")
    return is_no_filler(value) and bool(_DIGIT.search(body) or (len(body) >= 40 and "-" not in body))


def is_no_placeholder(value: str) -> bool:
    if _REFERENCE.search(value) or _FILLER.search(value) or _MENTION.search(value):
        return False
    return not _NAMES.match(value) or any(map(is_generated, value.split(".")))  # x25519.PrivateKey, var.db_password2


def is_generated(value: str) -> bool:
    """Whether ten and more letters and digits are mixed as no name and no word with a number is."""
    if len(value) < 10 or not (value.isascii() and value.isalnum()) or _CAMEL.fullmatch(value):
        return False
    runs = len(_RUNS.findall(value))
    if len(_DIGIT.findall(value)) >= 2:
        return runs >= max(4, 0.3 * len(value)) and bool(_LETTER.search(value))
    return runs >= max(5, 0.4 * len(value))


def looks_random(value: str) -> bool:
    """For unquoted values where a word might stand too, and where a hash is as good as a password."""
    return (is_generated(value) or looks_bare(value) or bool(_HASH.match(value))) and is_no_placeholder(value)


def looks_assigned(value: str) -> bool:
    """For quoted and environment-style values: digits among letters, three kinds of characters, or disorder."""
    mixed = _LETTER.search(value) and (
        _DIGIT.search(value)
        or (_UPPER.search(value) and _LOWER.search(value) and _SYMBOL.search(value))
        or is_generated(value)
    )
    return bool(mixed) and _bits_per_char(value) >= MIN_BITS_PER_CHAR and is_no_placeholder(value)


def looks_bare(value: str) -> bool:
    """For unquoted values in any other notation, which might as well be a word of a sentence or of a program."""
    digits = len(_DIGIT.findall(value))
    random = (digits and _SYMBOL.search(value)) or (len(value) >= 20 and digits >= 3)
    random = random or (len(value) >= 12 and digits >= 2 and is_generated(value))
    # Names of files have digits and signs too.
    is_path = "/" in value and "." in value
    return bool(random) and not is_path and not _HASH.match(value.lower()) and looks_assigned(value)


def is_passphrase(value: str) -> bool:
    """For four words and more with signs between them, behind a name that begins with `pass`."""
    return _PASSPHRASE.fullmatch(value) is not None and is_no_placeholder(value)


def looks_named(value: str) -> bool:
    """For values behind the name of a variable or setting, where no sentence goes on: four words are a passphrase."""
    return looks_assigned(value) or is_passphrase(value)


def is_table_value(value: str) -> bool:
    """For cells beside a name in lower case, which tables of hashes have too."""
    return looks_named(value) and not _HASH.match(value.lower())


def is_random_value(value: str) -> bool:
    """For any `..._KEY`: a name that may mean a key of a map, too."""
    kinds = (_UPPER, _LOWER, _DIGIT)
    is_random = all(len(kind.findall(value)) >= 2 for kind in kinds) and _bits_per_char(value) >= MIN_BITS_OF_KEY
    return is_random and is_no_placeholder(value)


def is_encoded_text(value: str) -> bool:
    """For values of a Kubernetes Secret: Base64 of something that can be typed."""
    try:
        text = base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    return len(text) >= 6 and text.strip().isprintable() and is_no_placeholder(text)


def looks_typed(value: str) -> bool:
    """For unquoted values behind a flag, where no word of a sentence stands."""
    kinds = (_UPPER, _LOWER, _DIGIT)
    is_random = value.isalnum() and all(len(kind.findall(value)) >= 2 for kind in kinds)
    return looks_bare(value) or ((is_random or is_generated(value)) and looks_assigned(value))


def looks_sent(value: str) -> bool:
    """For credentials in an `Authorization` header."""
    mixed = _DIGIT.search(value) or (_UPPER.search(value) and _LOWER.search(value))
    return bool(mixed) and is_no_placeholder(value)


def holds_key(value: str) -> bool:
    """For blocks between `BEGIN` and `END`: a text that only shows the lines has no key between them."""
    return _KEY_BODY.search(value) is not None


def _bits_per_char(value: str) -> float:
    length = len(value)
    return -sum(count / length * math.log2(count / length) for count in Counter(value).values())


@dataclass(frozen=True)
class SecretRule:
    """The group `secret` of `pattern`, which begins with one of `anchors`; those are in lower case."""

    kind: str
    anchors: tuple[str, ...]
    expression: str
    is_secret: Callable[[str], bool]
    before: int = 0
    """How many characters of the secret stand before the anchor."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when a text has an anchor: most rules are never needed."""
        return re.compile(self.expression)


ASSIGNED = "assigned-secret"

# Also behind `\n`, `\r` and `\t` as JSON and programs write them, whose letter would be a part of the word otherwise.
_WORD_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_ANY_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_KEY_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_KINDS = ("api", "auth", "access", "private", "encryption", "signing", "account")
_NO_CURSOR = r"(?<!next)(?<!next[_-])(?<!page)(?<!page[_-])(?<!lock)(?<!change)(?<!change[_-])(?<!continuation)"
"""Before `token`: tokens that say where a list goes on, or name a version, are no secrets."""

_PLAIN_NAME = (
    rf"(?:pass(?:words?|wd|phrase)|(?<![a-z])pass|pwd|{_NO_CURSOR}token|credentials?|secret(?:[_-]?access)?(?:[_-]?key)?(?:_base)?"
    rf"|(?:{'|'.join(f'(?<={kind})|(?<={kind}[_-])' for kind in _KEY_KINDS)})key)"
)
_NAME = rf"(?:{_PLAIN_NAME}|(?-i:(?<=[a-z])Pass)(?![a-z]))"
"""How names end whose values are secret; an anchor stands at their beginning."""

_VARIABLE = f"(?-i:{_PLAIN_NAME.upper()})"
"""The same at the end of the name of an environment variable."""

_SOME_KEY = r"(?<!public)(?<!ssh)(?-i:(?<=[A-Z0-9])_KEY|(?<=[a-z0-9])_key|(?<=[a-z0-9])Key)"
"""Any other key, which may be one of a map too: only a random value behind it is a secret."""

_PAIR = (
    r"(?:\\?[\"'],\s{0,40}\\?[\"']value\\?[\"'][ \t]{0,4}:"  # JSON: "name": "X", "value": "..."
    r"|[\"']?[ \t]{0,8}\r?\n[ \t-]{0,40}[\"']?value[\"']?:)"  # YAML: name: X, and value: below it
    r"[ \t]{0,8}\\?[\"']?"
)
"""From a name to its value where each stands behind a key of its own, in YAML or JSON."""

_TO_VALUE = rf"(?:{_PAIR}|[\"'`]?\]?(?:[ \t]{{0,4}}(?::=|=>|[:=])|[\s`*\"']{{0,40}}\||(?=[ \t]))[\s`*\"']{{0,40}})"
"""From a name to its value: an assignment, the next cell of a table, a pair of name and value, or a space."""

_NAME_ANCHORS = "pass pwd token credential secret key"
_PARAMETER = r" ?= ?(?P<secret>[^\s\"'`;&<>]{8,256})(?=[\s\"'`;&<>)]|$)"
"""What stands behind a name in a query or a connection string."""


def _token(
    kind: str, anchors: str, shape: str, is_secret: Callable[[str], bool] = is_no_filler, start: str = _WORD_START
) -> SecretRule:
    """A token of known shape, wherever a word may begin; anchors apart by spaces."""
    return SecretRule(kind, tuple(anchors.split()), f"{start}(?P<secret>{shape})", is_secret)


def _marked(kind: str, anchors: str, shape: str, is_secret: Callable[[str], bool] = is_no_filler) -> SecretRule:
    """A token whose beginning is no part of other words: it may follow `-` and `_`."""
    return _token(kind, anchors, shape, is_secret, _ANY_START)


def _value(kind: str, anchors: str, pattern: str, is_secret: Callable[[str], bool]) -> SecretRule:
    """A value in a place that makes it a secret: the group `secret` of the pattern."""
    return SecretRule(kind, tuple(anchors.split()), f"(?i){pattern}", is_secret)


def _assigned(pattern: str, is_secret: Callable[[str], bool], anchors: str = _NAME_ANCHORS) -> SecretRule:
    """A value that is assigned to a name."""
    return _value(ASSIGNED, anchors, pattern, is_secret)


def _typed(pattern: str, is_secret: Callable[[str], bool], anchors: str) -> SecretRule:
    """A value in the line of a command."""
    return _value("command-line-secret", anchors, pattern, is_secret)


_SERVICES: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("secret_services.toml").read_text(encoding="utf-8")
)
"""Services whose tokens begin with a mark of their own."""

# In this order, because a secret goes with the first rule that finds it: tokens of known shape keep the name of their
# service, and `assigned-secret`, which takes any value behind a name, comes last.
RULES = (
    _token("private-key", "-----begin",
        rf"-----BEGIN {_KEY_LABEL}"
        rf"(?:(?:[^-]|-(?!----))*+-----END {_KEY_LABEL}|(?:(?:\s|\\[nr])++[A-Za-z0-9+/=]{{16,}}+)++)", holds_key),
    _value("url-password", "://",
        r"(?<=[a-z0-9])://[^\s:/@\"'<>]{0,128}:(?P<secret>[^\s/\"'<>]{1,256})@(?=[\w\[])", is_no_placeholder),
    _marked("aws-access-key", "akia asia", r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])", is_no_example),
    _marked("github-token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"(?:gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_\w{22,251})"),
    _marked("gitlab-token", "gl", r"gl(?:pat|dt|rt|ptt|ft|cbt|oas|soat|imt|agent)-[\w.-]{20,300}"),
    _marked("slack-token", "xox xapp-", r"(?:xox[abceoprs]|xapp|xoxe\.xox[bp])-[A-Za-z0-9-]{10,251}"),
    _marked("slack-token", "xoxd-", r"xoxd-[A-Za-z0-9%+/=_-]{20,400}"),
    _value("slack-webhook", "hooks.slack.com",
        r"hooks\.slack\.com/(?P<secret>services/T\w{1,20}/B\w{1,20}/\w{20,40})", is_no_filler),
    _marked("anthropic-key", "sk-ant-", r"sk-ant-[\w-]{20,251}"),
    _token("openai-key", "sk-", r"sk-(?!ant-)[\w-]{20,251}", is_random_key),
    _marked("google-key", "aiza gocspx- ya29.", r"(?:AIza[\w-]{35}(?![\w-])|GOCSPX-[\w-]{28}|ya29\.[\w-]{20,1000})"),
    _marked("stripe-key", "sk_live_ sk_test_ sk_org_ rk_live_ rk_test_ whsec_",
        r"(?:[sr]k_(?:org_)?(?:live|test)_[A-Za-z0-9]{16,251}|whsec_[A-Za-z0-9+/=]{24,251})"),
    _marked("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _marked("pypi-token", "pypi-ag", r"pypi-Ag[\w-]{50,1000}"),
    _token("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,40}(?![A-Za-z0-9])"),
    *(_token(f"{name}-token", of["anchors"], f"{of['shape']}(?![A-Za-z0-9])") for name, of in _SERVICES.items()),
    _token("password-hash", "$2a$ $2b$ $2y$", r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}", start=""),
    _token("password-hash", "$1$ $5$ $6$ $apr1$",
        r"\$(?:[156]|apr1)\$(?:rounds=\d{1,9}\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{22,86}", start=""),
    _token("password-hash", "$y$ $gy$", r"\$g?y\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{1,86}\$[./A-Za-z0-9]{43}", start=""),
    SecretRule("mailchimp-token", ("-us",),
        r"(?<![\w-])(?P<secret>[0-9a-f]{32}-us\d{1,2})(?![\w-])", is_no_filler, 32),
    SecretRule("azure-devops-token", ("azdo",),
        r"(?<!\w)(?P<secret>[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4})(?!\w)", is_mixed, 76),
    _value("azure-secret", "q~", r"(?<=[\w~.]{3}\d)(?P<secret>Q~[\w.~-]{31,34})(?![\w.~-])", is_mixed),
    _value("azure-signature", "sig=", r"(?<=[?&;])sig=(?P<secret>(?:[\w+/-]|%[0-9a-f]{2}){40,64}=?)", is_no_filler),
    _value("telegram-token", ":aa", r"(?<=\d{8}):(?P<secret>AA[\w-]{33})(?![\w-])", is_no_filler),
    _value("terraform-token", ".atlasv1.", r"(?<=\w{14})\.atlasv1\.(?P<secret>[\w-]{60,70})(?![\w-])", is_no_filler),
    _value("discord-token", ".",
        r"(?:(?<=[mno][\w-]{23})|(?<=[mno][\w-]{25}))(?P<secret>\.[\w-]{6}\.[\w-]{27,40})(?![\w-])", is_mixed),
    _value("discord-webhook", "/api/webhooks/",
        r"(?<=\.com)/api/webhooks/\d{10,24}/(?P<secret>[\w-]{60,80})(?![\w-])", is_no_filler),
    _value("url-signature", "x-amz-signature= x-amz-security-token= x-goog-signature= &signature= ?signature=",
        r"[?&]?(?:x-(?:amz|goog)-)?(?:signature|security-token)=(?P<secret>[\w%+/=~.-]{24,4000})", is_no_placeholder),
    _marked("jwt", "eyj", r"eyJ[\w-]{10,4000}\.eyJ[\w-]{10,16000}\.[\w-]{10,2000}"),
    _value("bearer-token", "authorization",
        r"authorization\\?[\"']?\s{0,3}[:=,]\s{0,3}\\?[\"'`]?(?:bearer|basic|token)\s{1,3}(?P<secret>[\w.~+/=-]{12,4000})",
        looks_sent),
    _value("aws-secret-key", "secret",
        r"secret[_-]?(?:access[_-]?)?key\\?[\"']?\s{0,4}(?:=>|[:=])\s{0,4}\\?[\"']?(?P<secret>[A-Za-z0-9/+]{40})(?![\w/+=])",
        is_no_example),
    _value("private-key", "private-lines:",
        r"private-lines:[ \t]\d{1,4}\r?\n(?P<secret>(?:[a-z0-9+/=]{1,76}(?:\r?\n|$))++)", holds_key),
    _value("private-key", "client-key-data",
        r"client-key-data\"?:[ \t]{0,4}\"?(?P<secret>[a-z0-9+/]{40,16000}={0,2})", is_mixed),
    _value("private-key", '"d" "k" "p" "q" "dp" "dq" "qi"',
        r"\"(?:d|k|p|q|dp|dq|qi)\"\s{0,3}:\s{0,3}\"(?P<secret>[\w-]{40,1400})\"", is_random_value),
    _value("docker-login", ".dockerconfigjson .dockercfg",
        r"\.docker(?:configjson|cfg)\"?:[ \t]{0,4}\"?(?P<secret>[a-z0-9+/]{40,16000}={0,2})", is_no_placeholder),
    _value("session-cookie", "cookie:",
        r"cookie:[ \t]{0,3}(?:[^=;\s]{1,64}=[^;\s]{0,400};[ \t]{0,3}){0,12}?"
        r"[\w.-]{0,40}(?:sess|sid|auth|token|jwt|login)[\w.-]{0,20}=(?P<secret>[^;\s\"']{16,4000})", looks_sent),
    _value("docker-login", '"auth"', r"\"auth\"\s{0,3}:\s{0,3}\"(?P<secret>[a-z0-9+/]{12,400}={0,2})\"", is_login),
    _typed(r"(?<![\w-])(?:-u|--user)[ =]{0,2}[\"']?[\w.@-]{1,64}:(?P<secret>[^\s\"']{8,256})",
        looks_assigned, "-u --user"),
    _typed(rf"(?<=-){_NAME}[ \t][\"']?(?P<secret>[^\s\"'`]{{8,256}})(?=[\s\"']|$)", looks_typed, _NAME_ANCHORS),
    _typed(r"sshpass[ \t]{1,4}-p[ \t]{0,4}[\"']?(?P<secret>[^\s\"']{6,256})", looks_sent, "sshpass"),
    _typed(r"(?:mysql|mariadb)[\w-]{0,8}(?:[ \t][^\n|;&]{0,160}?)?[ \t]-p[\"']?(?P<secret>[^\s\"']{8,256})",
        looks_assigned, "mysql mariadb"),
    _typed(r"(?:docker|podman|registry)[ \t]login[ \t][^\n|;&]{0,160}?[ \t]?-p[ =][\"']?(?P<secret>[^\s\"']{8,256})",
        looks_sent, "docker podman registry"),
    _typed(r"redis-cli[ \t][^\n|;&]{0,160}?-a[ \t][\"']?(?P<secret>[^\s\"']{8,256})", looks_sent, "redis-cli"),
    _typed(r"(?:echo|printf)[ \t](?:-n[ \t])?[\"']?(?P<secret>[^\s\"'|]{8,256})[\"']?[ \t]{0,4}"
        r"\|[^\n|;&]{0,160}?password-stdin", looks_assigned, "echo printf"),
    _assigned(r":(?:\d{4}|\*):[^:\s]{1,64}:[^:\s]{1,64}:(?P<secret>[^:\s]{6,256})(?=\s|$)",
        looks_sent, ":5432: :5433: :6432: :*:"),
    _assigned(
        r"(?:identified(?:[ \t]{1,4}with[ \t]{1,4}[\w\"']{1,64})?[ \t]{1,4}(?:by|as)(?:[ \t]{1,4}password)?|password)"
        r"[ \t]{1,4}(?P<quote>[\"'])(?P<secret>[^\"'\s]{8,256})(?P=quote)", looks_assigned, "identified password"),
    _assigned(r"(?:getenv|environ\.(?:get|setdefault)|env\.fetch|getproperty|getordefault|define|env)"
        rf"\([ \t]?[\"'][\w.]{{0,60}}?{_NAME}[\"'],"
        r"[ \t]{0,4}[\"'](?P<secret>[^\s\"']{8,256})[\"']",
        looks_named, "getenv environ. env.fetch getproperty getordefault define( env("),
    _assigned(
        rf"{_NAME}[\"']?[)\]]?[ \t]{{0,4}}(?:\|\||\?\?|or[ \t])[ \t]{{0,4}}[\"'`](?P<secret>[^\s\"'`]{{8,256}})[\"'`]",
        looks_named),
    _assigned(rf"{_NAME}:?[-=](?P<secret>[^\s\"'{{}}$]{{8,256}}+)(?=\}})", looks_named),
    _assigned(
        rf"{_NAME}\\?\"\s{{0,3}}:\s{{0,3}}\{{[^{{}}]{{0,80}}?\"value\\?\"\s{{0,3}}:\s{{0,3}}\\?\"(?P<secret>[^\"\s]{{8,256}})\\?\"",
        looks_named),
    _value("npm-token", "_auth", r"(?<=/:)_auth(?:token)?=(?P<secret>[^\s\"']{16,400})", is_no_placeholder),
    _assigned(r"(?<![?&\w])(?:password|pwd)[ ]?=[ ]?(?P<secret>[^\s\"'`;<>]{8,256})(?=;)", looks_assigned, "pass pwd"),
    _assigned(rf"{_NAME}{_PAIR}(?P<secret>[^\s\"'\\]{{8,256}})", looks_named),
    _assigned(rf"(?<!\w)(?:env|arg)[ \t]{{1,8}}(?-i:[A-Z0-9_]{{0,60}}?){_VARIABLE}[ \t]{{1,8}}"
        r"[\"']?(?P<secret>[^\s\"'=]{8,256})", looks_named, "env arg"),
    _assigned(rf"{_VARIABLE}[\s`*\"']{{0,40}}\|[\s`*\"']{{0,40}}(?P<secret>[^\s|`\"']{{8,256}})"
        r"(?=[ \t`*\"']{0,40}\|)", looks_named),
    _assigned(rf"{_NAME}[ \t`*\"']{{0,40}}\|[ \t`*\"']{{0,40}}(?P<secret>[^\s|`\"']{{8,256}})(?=[ \t`*\"']{{0,40}}\|)",
        is_table_value),
    _assigned(rf"{_VARIABLE}[ \t`*\"']{{0,40}}\|[^|\n]{{0,120}}\|[ \t`*\"']{{0,40}}(?P<secret>[^\s|`\"']{{8,256}})"
        r"(?=[ \t`*\"']{0,40}\|)", looks_random),
    _assigned(rf"{_NAME}[ \t]{{0,4}}:[ \t]{{1,8}}(?P<secret>[A-Za-z0-9+/]{{8,2000}}={{0,2}})(?=\s|$)", is_encoded_text),
    _assigned(
        r"pass(?:word|phrase|wd)?\\?[\"']?[ \t]{0,8}[:=][ \t]{0,8}\\?(?P<quote>[\"'`])(?P<secret>[^\"'`\n\\]{8,256})"
        r"\\?(?P=quote)", is_passphrase, "pass"),
    _assigned(
        r"pass(?:word|phrase|wd)?(?:=|[ \t]{0,4}:[ \t]{1,4})(?P<secret>[^\s\"'`;&]{8,256})(?=[ \t]*(?:[\r\n`]|$))",
        is_passphrase, "pass"),
    _assigned(rf"{_SOME_KEY}{_TO_VALUE}(?P<secret>[A-Za-z0-9+/=_-]{{20,256}})(?=[\s\"',;`|]|$)",
        is_random_value, "_key key"),
    _assigned(rf"[?&#](?:api|access|o?auth|client)[_-]?(?:key|token|secret)(?:_secret)?{_PARAMETER}",
        looks_assigned, "?api &api ?access &access #access ?auth &auth ?oauth &oauth ?client &client"),
    _assigned(rf"(?:(?<=[?&])|(?<=-literal=)|(?:(?<=;)|(?<=; ))(?=p)){_NAME}{_PARAMETER}", looks_assigned),
    _assigned(rf"{_NAME}>\s{{0,8}}(?P<secret>[^<>\s]{{8,256}})\s{{0,8}}</", looks_assigned),
    _assigned(r"login[ \t]{1,4}\S{1,64}\s{1,8}password[ \t]{1,4}(?P<secret>\S{6,256})(?=\s|$)", looks_sent, "login"),
    _assigned(r"set(?:pass(?:word|phrase)|secret(?:key)?|(?:access|auth|api)?token|(?:api|access)key)"
        r"\([\"'](?P<secret>[^\s\"']{8,256})[\"']", looks_assigned, "setp sets sett seta"),
    _assigned(
        r"(?:api|client|secret|access|auth|private|signing|encryption)[_-]?(?:key|secret|token)[ \t]{0,4}[:=][ \t]{0,4}"
        r"(?P<secret>[0-9a-f]{32,64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=[\s,;&`\"']|$)",
        looks_assigned, "api client secret access auth private signing encryption"),
    _assigned(rf"{_NAME}\\?[\"']?\]?[ \t]{{0,8}}(?::[ \t]?[&\w]{{1,20}}[ \t]{{0,4}}=|:=|=>|[:=]|value=)[ \t]{{0,8}}"
        r"[@bru]{0,2}\\?(?P<quote>[\"'`])(?P<secret>[^\"'`\s\\]{8,256})\\?(?P=quote)", looks_assigned),
    SecretRule(ASSIGNED, tuple(_NAME_ANCHORS.split()),
        r"(?:PASSWORD|PASSWD|PASSPHRASE|PWD|PASS|SECRET|TOKEN|KEY(?:_BASE)?|CREDENTIALS?)=(?P<secret>(?:[^\s\"'`;&]|&(?!&)){8,256})",
        looks_assigned),
    _assigned(rf"{_NAME}(?:[ \t]{{0,4}}[:=]|[ \t]is:?)[ \t]{{0,4}}"
        r"(?P<secret>[^\s\"'`<>(){}\[\],;]{8,256})(?=[\s\"'`,;]|$)", looks_bare),
    _assigned(r"(?:pass(?:words?|wort|wd|phrase)|(?:(?<![a-z])|(?<=require))pass|pwd|(?<![a-z])pw)[\"'`*]{0,3}"
        r"(?:[ \t]{0,4}[:=][\"'`*]{0,3}|[ \t]is:?|(?=[ \t]))[ \t]{0,8}[\"'`]?"
        r"(?P<secret>[^\s\"'`<>(){}\[\],;|&]{10,256})(?=[\"'`]?[.,;&]?(?:\s|$))", looks_random, "pass pwd pw"),
)  # fmt: skip

TABLE_NAMES = ("pass", "pwd", "secret", "token")
TABLE_HEADING = re.compile(
    r"(?:password|passwd|pwd|pass|secret|token)[ \t`*]{0,8}(?P<after>(?:\|[^|\r\n]{0,100}){0,20})\r?\n"
    r"[ \t|:-]{0,200}-{2}[ \t|:-]{0,200}\r?\n",
    re.IGNORECASE,
)
"""The heading of a column of secrets, the headings after it, and the line below them."""
