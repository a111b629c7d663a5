"""Takes secrets out of a text before anything is stored, and leaves texts that merely talk about secrets alone.

Tokens of known shape go wherever they stand. A value assigned to a name like `password` goes only if it looks like a
secret: quoted or in the form of an environment file, long enough, mixed characters, and no placeholder. Hashes and
UUIDs under any other name stay. Patterns are tried only where a substring search found what they begin with, and are
bounded or possessive: the time is linear on any input, and next to nothing on a text without such words.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

MIN_SECRET_CHARS = 8
MIN_BITS_PER_CHAR = 2.5
"""Shannon entropy of an assigned value; eight distinct characters have 3, `aaaabbbb` has 1."""


@dataclass(frozen=True, slots=True)
class Redaction:
    """How many secrets of one kind were taken out."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and what was found; `found` is empty where nothing was changed."""

    content: str
    found: tuple[Redaction, ...]


@dataclass(frozen=True, slots=True)
class _Rule:
    """The group `secret` of `pattern`, which begins with one of `anchors`; those are in lower case."""

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool]


def redact(content: str) -> Redacted:
    """Replace each secret in `content` by `[REDACTED:kind]`."""
    counts: Counter[str] = Counter()
    folded = _fold(content)
    for rule in _RULES:
        places = _places(folded, rule.anchors)
        spans = list(_secrets(rule, content, places))
        if spans:
            counts[rule.kind] += len(spans)
            content = _replaced(content, spans, f"[REDACTED:{rule.kind}]")
            folded = _fold(content)
    return Redacted(content, tuple(Redaction(kind, count) for kind, count in counts.items()))


def _fold(content: str) -> str:
    """Lower case at the same offsets; a capital I with a dot is the only letter whose lower case is longer."""
    return content.replace("\u0130", "i").lower()


def _places(folded: str, anchors: Sequence[str]) -> list[int]:
    places: list[int] = []
    for anchor in anchors:
        place = folded.find(anchor)
        while place >= 0:
            places.append(place)
            place = folded.find(anchor, place + 1)
    return sorted(places)


def _secrets(rule: _Rule, content: str, places: Sequence[int]) -> Iterator[tuple[int, int]]:
    end = 0
    for place in places:
        match = rule.pattern.match(content, place) if place >= end else None
        if match and rule.is_secret(match["secret"]):
            end = match.end("secret")
            yield match.span("secret")


def _replaced(content: str, spans: Sequence[tuple[int, int]], mark: str) -> str:
    parts: list[str] = []
    position = 0
    for start, end in spans:
        parts += [content[position:start], mark]
        position = end
    return "".join([*parts, content[position:]])


_FILLER = re.compile(r"[xX*.•…0#-]{4,}+|\.\.\.")
_REFERENCE = re.compile(r"[<>{}…]|\$[({]|%\(|%\w+%|\[REDACTED|^\$|^process\.env|^os\.environ|^secrets\.")
_TALK = re.compile(
    r"example|placeholder|change[-_ ]?(?:me|it|this)|your[-_ ]?|dummy|redacted|insert|replace|sample|todo|foobar"
    r"|^(?:my|the|some|a|test|new|old|db|user|admin|root|api|app|access|auth|client|current)?[-_. ]?"
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|key|credentials?)"
    r"[-_. ]?(?:here|goes|value|key|field|string|hash)?[-_]?(?:1|12|123|1234|12345)?!?$",
    re.IGNORECASE,
)
_LETTER, _DIGIT, _UPPER, _LOWER = map(re.compile, (r"[^\W\d_]", r"\d", r"[A-Z]", r"[a-z]"))
_SYMBOL = re.compile(r"[!@#$%^&*+=~?]")
_HASH = re.compile(
    r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{128}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$"
)
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{40}")


def _is_no_filler(value: str) -> bool:
    """For tokens of known shape: everything but `ghp_xxxx...`."""
    return not _FILLER.search(value)


def _is_random_key(value: str) -> bool:
    """For `sk-...`, which is also how names of styles and packages begin."""
    body = value.removeprefix("sk-")
    return _is_no_filler(value) and bool(_DIGIT.search(body) or (len(body) >= 40 and "-" not in body))


def _is_no_placeholder(value: str) -> bool:
    return not (_REFERENCE.search(value) or _FILLER.search(value) or _TALK.search(value))


def _looks_assigned(value: str) -> bool:
    """For quoted and environment-style values: digits among letters, or three kinds of characters."""
    mixed = _LETTER.search(value) and (
        _DIGIT.search(value) or (_UPPER.search(value) and _LOWER.search(value) and _SYMBOL.search(value))
    )
    return bool(mixed) and _bits_per_char(value) >= MIN_BITS_PER_CHAR and _is_no_placeholder(value)


def _looks_bare(value: str) -> bool:
    """For unquoted values in any other notation, which might as well be a word of a sentence or of a program."""
    digits = len(_DIGIT.findall(value))
    random = (digits and _SYMBOL.search(value)) or (len(value) >= 20 and digits >= 3)
    is_path = "/" in value and "." in value
    return bool(random) and not is_path and not _HASH.match(value.lower()) and _looks_assigned(value)


def _looks_sent(value: str) -> bool:
    """For credentials in an `Authorization` header."""
    mixed = _DIGIT.search(value) or (_UPPER.search(value) and _LOWER.search(value))
    return bool(mixed) and _is_no_placeholder(value)


def _holds_key(value: str) -> bool:
    """For blocks between `BEGIN` and `END`: a text that only shows the lines has no key between them."""
    return _KEY_BODY.search(value) is not None


def _bits_per_char(value: str) -> float:
    length = len(value)
    return -sum(count / length * math.log2(count / length) for count in Counter(value).values())


_WORD_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_KEY_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_KINDS = ("api", "auth", "access", "private", "encryption", "signing", "account")
_NAME = (
    r"(?:pass(?:words?|wd|phrase)|(?<![a-z])pass|pwd|token|credentials?|secret(?:[_-]?access)?(?:[_-]?key)?(?:_base)?"
    rf"|(?:{'|'.join(f'(?<={kind})|(?<={kind}[_-])' for kind in _KEY_KINDS)})key)"
)
_NAME_ANCHORS = "pass pwd token credential secret key"


def _token(kind: str, anchors: str, shape: str, is_secret: Callable[[str], bool] = _is_no_filler) -> _Rule:
    """A token of known shape, wherever a word may begin; anchors apart by spaces."""
    return _Rule(kind, tuple(anchors.split()), re.compile(f"{_WORD_START}(?P<secret>{shape})"), is_secret)


def _value(kind: str, anchors: str, pattern: str, is_secret: Callable[[str], bool]) -> _Rule:
    """A value in a place that makes it a secret: the group `secret` of the pattern."""
    return _Rule(kind, tuple(anchors.split()), re.compile(pattern, re.IGNORECASE), is_secret)


_RULES = (
    _token(
        "private-key",
        "-----begin",
        rf"-----BEGIN {_KEY_LABEL}"
        rf"(?:(?:[^-]|-(?!----))*+-----END {_KEY_LABEL}|(?:(?:\s|\\[nr])++[A-Za-z0-9+/=]{{16,}}+)++)",
        _holds_key,
    ),
    _value(
        "url-password",
        "://",
        r"(?<=[a-z0-9])://[^\s:/@\"'<>]{0,128}:(?P<secret>[^\s/\"'<>]{1,256})@(?=[\w\[])",
        _is_no_placeholder,
    ),
    _token("aws-access-key", "akia asia", r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _token(
        "github-token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"(?:gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_\w{22,251})",
    ),
    _token("gitlab-token", "glpat- gldt- glrt- glptt- glft-", r"gl(?:pat|dt|rt|ptt|ft)-[\w.-]{20,300}"),
    _token("slack-token", "xox xapp-", r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,251}"),
    _value(
        "slack-webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?P<secret>services/T\w{1,20}/B\w{1,20}/\w{20,40})",
        _is_no_filler,
    ),
    _token("anthropic-key", "sk-ant-", r"sk-ant-[\w-]{20,251}"),
    _token("openai-key", "sk-", r"sk-(?!ant-)[\w-]{20,251}", _is_random_key),
    _token("google-key", "aiza gocspx- ya29.", r"(?:AIza[\w-]{35}(?![\w-])|GOCSPX-[\w-]{28}|ya29\.[\w-]{20,1000})"),
    _token(
        "stripe-key",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,251}|whsec_[A-Za-z0-9+/=]{24,251})",
    ),
    _token("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _token("pypi-token", "pypi-ag", r"pypi-Ag[\w-]{50,1000}"),
    _token("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,40}(?![A-Za-z0-9])"),
    _token("jwt", "eyj", r"eyJ[\w-]{10,4000}\.eyJ[\w-]{10,16000}\.[\w-]{10,2000}"),
    _value(
        "bearer-token",
        "authorization",
        r"authorization\\?[\"']?\s{0,3}[:=,]\s{0,3}\\?[\"'`]?(?:bearer|basic|token)\s{1,3}(?P<secret>[\w.~+/=-]{12,4000})",
        _looks_sent,
    ),
    _value(
        "aws-secret-key",
        "secret",
        r"secret[_-]?(?:access[_-]?)?key\\?[\"']?\s{0,4}(?:=>|[:=])\s{0,4}\\?[\"']?(?P<secret>[A-Za-z0-9/+]{40})(?![\w/+=])",
        _is_no_filler,
    ),
    _value(
        "assigned-secret",
        _NAME_ANCHORS,
        rf"{_NAME}\\?[\"']?\]?[ \t]{{0,8}}(?::[ \t]?\w{{1,20}}[ \t]{{0,4}}=|:=|=>|[:=])[ \t]{{0,8}}"
        r"\\?(?P<quote>[\"'`])(?P<secret>[^\"'`\s\\]{8,256})\\?(?P=quote)",
        _looks_assigned,
    ),
    _Rule(
        "assigned-secret",
        tuple(_NAME_ANCHORS.split()),
        re.compile(
            r"(?:PASSWORD|PASSWD|PASSPHRASE|PWD|PASS|SECRET|TOKEN|KEY(?:_BASE)?|CREDENTIALS?)=(?P<secret>[^\s\"'`;&]{8,256})"
        ),
        _looks_assigned,
    ),
    _value(
        "assigned-secret",
        _NAME_ANCHORS,
        rf"{_NAME}[ \t]{{0,4}}[:=][ \t]{{0,4}}(?P<secret>[^\s\"'`<>(){{}}\[\],;]{{8,256}})(?=[\s,;]|$)",
        _looks_bare,
    ),
)
