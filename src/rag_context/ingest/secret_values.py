"""Whether a value looks like a secret: random, or as people make passwords, and no placeholder, reference or hash."""

import base64
import binascii
import math
import re
from collections import Counter

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
