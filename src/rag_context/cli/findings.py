"""What `doctor` finds: facts about an installation, each with what to do about it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import httpx2

from rag_context.errors import RagContextError

LIVE_TIMEOUT_S = 2.0

Severity = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about this installation.

    Attributes:
        area: what it is about.
        status: `wrong` is what keeps something from working.
        message: the fact, in a sentence.
        next_step: what to do about it; None where there is nothing to do.
    """

    area: str
    status: Severity
    message: str
    next_step: str | None = None


def problems(area: str, error: RagContextError, default_step: str, status: Severity = "wrong") -> Iterator[Finding]:
    """An error as findings, a line each; `default_step` is for one that does not say behind a colon what to do."""
    for line in str(error).splitlines():
        message, colon, step = line.rstrip(".").rpartition(": ")
        yield Finding(area, status, message if colon else line.rstrip("."), step if colon else default_step)


def running_version(url: str) -> str | None:
    """The version of the rag-context that answers there; None where none does."""
    try:
        answer = httpx2.get(url + "/live", timeout=LIVE_TIMEOUT_S, trust_env=False).json()
        return str(answer["version"]) if "instance" in answer else None
    except (httpx2.HTTPError, ValueError, TypeError, KeyError):
        return None
