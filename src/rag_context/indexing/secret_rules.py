"""What secrets look like: by their own shape, or by the place where they stand.

Tokens of known shape go wherever they stand. A value assigned to a name like `password` goes only if it looks like a
secret: quoted or in the form of an environment file, long enough, mixed characters, and no placeholder. Hashes and
UUIDs under any other name stay. All repeats are bounded or possessive.
"""

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

MIN_BITS_PER_CHAR = 2.5
"""Shannon entropy of an assigned value; eight distinct characters have 3, `aaaabbbb` has 1."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The group `secret` of `pattern`, which begins with one of `anchors`; those are in lower case."""

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool]


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


def _is_no_example(value: str) -> bool:
    """For tokens of a vendor who prints `...EXAMPLE` in its own documentation."""
    return "EXAMPLE" not in value and _is_no_filler(value)


def _is_mixed(value: str) -> bool:
    """For shapes that a dotted name might have too."""
    return all(kind.search(value) for kind in (_DIGIT, _UPPER, _LOWER)) and _is_no_filler(value)


def _is_login(value: str) -> bool:
    """For `user:password` in Base64."""
    try:
        return b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


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


def _looks_typed(value: str) -> bool:
    """For unquoted values behind a flag, where no word of a sentence stands."""
    kinds = (_UPPER, _LOWER, _DIGIT)
    is_random = value.isalnum() and all(len(kind.findall(value)) >= 2 for kind in kinds)
    return _looks_bare(value) or (is_random and _looks_assigned(value))


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
_PARAMETER = r" ?= ?(?P<secret>[^\s\"'`;&<>]{8,256})(?=[\s\"'`;&<>)]|$)"
"""What stands behind a name in a query or a connection string."""


def _token(kind: str, anchors: str, shape: str, is_secret: Callable[[str], bool] = _is_no_filler) -> Rule:
    """A token of known shape, wherever a word may begin; anchors apart by spaces."""
    return Rule(kind, tuple(anchors.split()), re.compile(f"{_WORD_START}(?P<secret>{shape})"), is_secret)


def _value(kind: str, anchors: str, pattern: str, is_secret: Callable[[str], bool]) -> Rule:
    """A value in a place that makes it a secret: the group `secret` of the pattern."""
    return Rule(kind, tuple(anchors.split()), re.compile(pattern, re.IGNORECASE), is_secret)


_SERVICES = (
    ("atlassian", "atatt3", r"ATATT3[\w=-]{60,300}"),
    ("airtable", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("age", "age-secret-key-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    ("buildkite", "bkua_", r"bkua_[0-9a-f]{40}"),
    ("databricks", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?"),
    ("digitalocean", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    ("docker", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[\w-]{27,64}"),
    ("doppler", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,64}"),
    ("dynatrace", "dt0", r"dt0[a-z]\d{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("figma", "figd_", r"figd_[\w-]{40,64}"),
    ("fly", "fo1_ fm1_ fm2_", r"(?:fo1|fm[12]r?)_[\w+/=-]{43,2000}"),
    ("grafana", "glsa_", r"glsa_[A-Za-z0-9]{32}_[0-9A-Fa-f]{8}"),
    ("groq", "gsk_", r"gsk_[A-Za-z0-9]{40,64}"),
    ("heroku", "hrku-", r"HRKU-[\w-]{36,80}"),
    ("langsmith", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("linear", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,64}"),
    ("mailgun", "key-", r"key-[0-9a-f]{32}"),
    ("netlify", "nfp_", r"nfp_[A-Za-z0-9]{36,40}"),
    ("new-relic", "nrak- nral- nrii-", r"NR(?:AK|AL|II)-[\w-]{27,32}"),
    ("notion", "ntn_ secret_", r"(?:ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{43})"),
    ("nvidia", "nvapi-", r"nvapi-[\w-]{60,80}"),
    ("one-password", "ops_eyj", r"ops_eyJ[A-Za-z0-9+/]{200,2000}={0,3}"),
    ("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{40,64}"),
    ("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth)_[\w.=-]{32,64}"),
    ("postman", "pmak-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("pulumi", "pul-", r"pul-[0-9a-f]{40}"),
    ("replicate", "r8_", r"r8_[A-Za-z0-9]{37,40}"),
    ("rubygems", "rubygems_", r"rubygems_[0-9a-f]{48}"),
    ("sendgrid", "sg.", r"SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    ("sentry", "sntrys_ sntryu_", r"(?:sntrys_[\w+/=-]{60,400}|sntryu_[0-9a-f]{64})"),
    ("shopify", "shp", r"shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}"),
    ("square", "sq0atp- sq0csp-", r"sq0(?:atp|csp)-[\w-]{22,43}"),
    ("supabase", "sbp_ sb_secret_", r"(?:sbp_[0-9a-f]{40}|sb_secret_[\w-]{31,48})"),
    ("tavily", "tvly-", r"tvly-[A-Za-z0-9-]{32,64}"),
    ("twilio", "sk", r"SK[0-9a-f]{32}"),
    ("vault", "hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{24,300}"),
    ("xai", "xai-", r"xai-[A-Za-z0-9]{70,90}"),
)
"""Services whose tokens begin with a mark of their own."""

RULES = (
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
    _token("aws-access-key", "akia asia", r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])", _is_no_example),
    _token(
        "github-token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"(?:gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_\w{22,251})",
    ),
    _token(
        "gitlab-token",
        "gl",
        r"gl(?:pat|dt|rt|ptt|ft|cbt|oas|soat|imt|agent)-[\w.-]{20,300}",
    ),
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
    *(_token(f"{service}-token", anchors, f"{shape}(?![A-Za-z0-9])") for service, anchors, shape in _SERVICES),
    _value("azure-secret", "q~", r"(?<=[\w~.]{3}\d)(?P<secret>Q~[\w.~-]{31,34})(?![\w.~-])", _is_mixed),
    _value("azure-signature", "sig=", r"(?<=[?&;])sig=(?P<secret>(?:[\w+/-]|%[0-9a-f]{2}){40,64}=?)", _is_no_filler),
    _value("telegram-token", ":aa", r"(?<=\d{8}):(?P<secret>AA[\w-]{33})(?![\w-])", _is_no_filler),
    _value("terraform-token", ".atlasv1.", r"(?<=\w{14})\.atlasv1\.(?P<secret>[\w-]{60,70})(?![\w-])", _is_no_filler),
    _value(
        "discord-token",
        ".",
        r"(?:(?<=[mno][\w-]{23})|(?<=[mno][\w-]{25}))(?P<secret>\.[\w-]{6}\.[\w-]{27,40})(?![\w-])",
        _is_mixed,
    ),
    _value(
        "discord-webhook",
        "/api/webhooks/",
        r"(?<=\.com)/api/webhooks/\d{10,24}/(?P<secret>[\w-]{60,80})(?![\w-])",
        _is_no_filler,
    ),
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
        _is_no_example,
    ),
    _value("docker-login", '"auth"', r"\"auth\"\s{0,3}:\s{0,3}\"(?P<secret>[a-z0-9+/]{12,400}={0,2})\"", _is_login),
    _value(
        "command-line-secret",
        "-u --user",
        r"(?<![\w-])(?:-u|--user)[ =]{0,2}[\"']?[\w.@-]{1,64}:(?P<secret>[^\s\"']{8,256})",
        _looks_assigned,
    ),
    _value(
        "command-line-secret",
        _NAME_ANCHORS,
        rf"(?<=-){_NAME}[ \t][\"']?(?P<secret>[^\s\"'`]{{8,256}})(?=[\s\"']|$)",
        _looks_typed,
    ),
    _value(
        "command-line-secret", "sshpass", r"sshpass[ \t]{1,4}-p[ \t]{0,4}[\"']?(?P<secret>[^\s\"']{6,256})", _looks_sent
    ),
    _value(
        "command-line-secret",
        "mysql mariadb",
        r"(?:mysql|mariadb)[\w-]{0,8}(?:[ \t][^\n|;&]{0,160}?)?[ \t]-p[\"']?(?P<secret>[^\s\"']{8,256})",
        _looks_assigned,
    ),
    _value("npm-token", "_auth", r"(?<=/:)_auth(?:token)?=(?P<secret>[^\s\"']{16,400})", _is_no_placeholder),
    _value(
        "assigned-secret",
        "?api &api ?access &access #access ?auth &auth ?oauth &oauth ?client &client",
        rf"[?&#](?:api|access|o?auth|client)[_-]?(?:key|token|secret)(?:_secret)?{_PARAMETER}",
        _looks_assigned,
    ),
    _value(
        "assigned-secret",
        _NAME_ANCHORS,
        rf"(?:(?<=[?&])|(?<=-literal=)|(?:(?<=;)|(?<=; ))(?=p)){_NAME}{_PARAMETER}",
        _looks_assigned,
    ),
    _value(
        "assigned-secret",
        _NAME_ANCHORS,
        rf"{_NAME}>\s{{0,8}}(?P<secret>[^<>\s]{{8,256}})\s{{0,8}}</",
        _looks_assigned,
    ),
    _value(
        "assigned-secret",
        "login",
        r"login[ \t]{1,4}\S{1,64}\s{1,8}password[ \t]{1,4}(?P<secret>\S{6,256})(?=\s|$)",
        _looks_sent,
    ),
    _value(
        "assigned-secret",
        "setp sets sett seta",
        r"set(?:pass(?:word|phrase)|secret(?:key)?|(?:access|auth|api)?token|(?:api|access)key)"
        r"\([\"'](?P<secret>[^\s\"']{8,256})[\"']",
        _looks_assigned,
    ),
    _value(
        "assigned-secret",
        "api client secret access auth private signing encryption",
        r"(?:api|client|secret|access|auth|private|signing|encryption)[_-]?(?:key|secret|token)[ \t]{0,4}[:=][ \t]{0,4}"
        r"(?P<secret>[0-9a-f]{32,64})(?=[\s,;&]|$)",
        _looks_assigned,
    ),
    _value(
        "assigned-secret",
        _NAME_ANCHORS,
        rf"{_NAME}\\?[\"']?\]?[ \t]{{0,8}}(?::[ \t]?[&\w]{{1,20}}[ \t]{{0,4}}=|:=|=>|[:=]|value=)[ \t]{{0,8}}"
        r"[@bru]{0,2}\\?(?P<quote>[\"'`])(?P<secret>[^\"'`\s\\]{8,256})\\?(?P=quote)",
        _looks_assigned,
    ),
    Rule(
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
        rf"{_NAME}(?:[ \t]{{0,4}}[:=]|[ \t]is:?)[ \t]{{0,4}}"
        r"(?P<secret>[^\s\"'`<>(){}\[\],;]{8,256})(?=[\s\"'`,;]|$)",
        _looks_bare,
    ),
)
