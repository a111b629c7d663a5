"""The pages that come with the package: self-contained, offline, and allowed to run their own script only."""

import base64
import hashlib
import re
from functools import cache
from importlib import resources

from rag_context._version import __version__
from rag_context.server.exchange import Reply

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


@cache
def page_reply(name: str) -> Reply:
    """The page in `html/<name>`, its version filled in, under a policy made of its own scripts and styles."""
    text = resources.files("rag_context.server").joinpath("html", name).read_text("utf-8")
    text = text.replace("{{version}}", __version__)
    policy = (
        f"default-src 'none'; script-src {_hashes(_SCRIPT, text)}; style-src {_hashes(_STYLE, text)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Reply(
        text.encode(),
        media_type=b"text/html; charset=utf-8",
        headers=(
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ),
    )


def _hashes(pattern: re.Pattern[str], text: str) -> str:
    found = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in pattern.findall(text)]
    return " ".join(f"'sha256-{digest}'" for digest in found) or "'none'"
