"""What a browser is given: the page at `/` with its scripts and styles, and the page of the API.

Nothing of them comes from anywhere else, and their policies keep it so. What is shown on them is other people's text:
the page at `/` has `require-trusted-types-for`, so that a browser reads none of it as HTML.
"""

import base64
import hashlib
import re
from functools import cache
from importlib import resources

from rag_context._version import __version__
from rag_context.api.parsing import ErrorCode
from rag_context.server.requests import HttpRequest, Reply, RequestRejectedError

PAGE_PREFIX = "/page/"
"""Where the scripts and styles of the page are; served without a key, as the page is."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def page_part(name: str, request: HttpRequest) -> Reply:
    """The page (`index.html`), or one of its files. Raises: RequestRejectedError where there is none of that name.

    A browser sends a request each time, and gets 304 if nothing changed: after an upgrade no old script is run.
    """
    reply = _parts().get(name)
    if reply is None:
        raise RequestRejectedError(404, ErrorCode.NOT_FOUND, "Not found")
    known = request.header(b"if-none-match")
    if known is not None and known.encode() == dict(reply.headers)[b"etag"]:
        return Reply(b"", 304, reply.media_type, reply.headers)
    return reply


@cache
def _parts() -> dict[str, Reply]:
    folder = resources.files("rag_context.server").joinpath("page")
    found = {}
    for file in folder.iterdir():
        kind = _TYPES.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            found[file.name] = _part(file.read_text("utf-8").replace("{{version}}", __version__).encode(), kind)
    return found


def _part(body: bytes, kind: str) -> Reply:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = (*_headers(_POLICY), (b"cache-control", b"no-cache"), (b"etag", etag.encode()))
    return Reply(body, media_type=f"{kind}; charset=utf-8".encode(), headers=headers)


@cache
def api_page() -> Reply:
    """The page of the API, in one file, under a policy made of its own scripts and styles."""
    text = resources.files("rag_context.server").joinpath("html", "docs.html").read_text("utf-8")
    text = text.replace("{{version}}", __version__)
    policy = (
        f"default-src 'none'; script-src {_hashes(_SCRIPT, text)}; style-src {_hashes(_STYLE, text)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Reply(text.encode(), media_type=b"text/html; charset=utf-8", headers=_headers(policy))


def _headers(policy: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    )


def _hashes(pattern: re.Pattern[str], text: str) -> str:
    found = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in pattern.findall(text)]
    return " ".join(f"'sha256-{digest}'" for digest in found) or "'none'"
