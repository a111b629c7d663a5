"""docs/collections.md says what is true: its requests are sent, and its answers compared."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest

from rag_context.api.collection_documents import NOT_EMBEDDED, REQUIRED
from rag_context.api.wire import ID_CHARS, NAME_CHARS

from .asgi_client import asgi_client
from .services import memory_service

PAGE = (Path(__file__).parents[2] / "docs" / "collections.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(http|json)\n(.*?)```", re.DOTALL)


def exchanges() -> list[tuple[str, str, str, dict[str, Any] | None]]:
    """Method, address, body and expected answer (None: any) of the first section."""
    section = PAGE.split("## A first collection\n")[1].split("\n## ")[0]
    blocks = BLOCK.findall(section)
    found = []
    for place, (kind, text) in enumerate(blocks):
        if kind == "http":
            head, _, body = text.partition("\n")
            method, _, address = head.partition(" ")
            after = blocks[place + 1] if place + 1 < len(blocks) else ("", "")
            found.append((method, address, body, json.loads(after[1]) if after[0] == "json" else None))
    return found


async def test_the_first_section_can_be_followed() -> None:
    async with asgi_client(memory_service()) as client:
        for method, address, body, expected in exchanges():
            path, _, query = address.partition("?")
            reply = await client.request(
                method,
                quote(path),
                params=dict(parse_qsl(query)),
                content=body,
                headers={"Content-Type": "application/json"} if body else {},
            )
            assert reply.is_success, reply.text
            if expected is not None:
                assert reply.json() == near(expected), address


def near(expected: dict[str, Any]) -> dict[str, Any]:
    """The same, its scores compared as numbers that were rounded."""
    hits = expected.get("results")
    if hits is None:
        return expected
    return {"results": [{**hit, "score": pytest.approx(hit["score"], abs=1e-6)} for hit in hits]}


def test_limits_and_sentences_of_the_page_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert f"1 to {NAME_CHARS} characters" in text
    assert f"1 to {ID_CHARS} characters" in text
    assert f"`{REQUIRED}`" in text
    assert f"`{NOT_EMBEDDED}`" in text
