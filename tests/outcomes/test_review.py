"""H-5, H-10: what probably needs a decision is suggested, decided by a person, and not suggested again."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rag_context.agents.workspace import workspace
from rag_context.api.handlers import CallContext
from rag_context.api.index import BulkLine
from rag_context.api.operations import memory
from rag_context.memory.service import Service
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service
from tests.agents.test_workspace import repository
from tests.references.test_repositories import commit, write
from tests.text.attacks import attacks

OLD = "A failed payment of the harbour office is retried three times before the clerk is told."
NEW = "A failed payment of the harbour office is retried five times before the clerk is told."
COPY = (
    "The pump of berth four is switched off at night, because its noise wakes the neighbours on the hill, and nobody "
    "needs the water before six in the morning, when the first boats leave for the fishing grounds."
)


class Memory:
    """A service in this process, called as HTTP calls it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._day = 0

    async def call(self, name: str, context: CallContext | None = None, **arguments: Any) -> dict[str, Any]:
        operation = next(each for each in vars(memory).values() if getattr(each, "name", "") == f"rag_context_{name}")
        request = operation.request.model_validate(arguments)
        response = await self.service.handlers()[operation.name](request, context or CallContext("r"))
        return response.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def index(self, content: str, origin: str = "agent", **fields: Any) -> str:
        """The later, the newer."""
        self._day += 1
        at = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=self._day)
        line = {"contentType": "decision", "sessionId": "s", "source": f"{self._day}.md", "occurredAt": at, **fields}
        (receipt,) = await self.service.bulk_all(
            [BulkLine.model_validate({"content": content, "origin": origin, **line})], request_id="r"
        )
        assert not isinstance(receipt, Exception) and receipt.document_id is not None
        return receipt.document_id

    async def suggestions(self, *kinds: str, **fields: Any) -> list[dict[str, Any]]:
        found = (await self.call("review", limit=100, **fields))["suggestions"]
        return [each for each in found if each["kind"] in kinds]


@asynccontextmanager
async def opened(data_dir: Path) -> AsyncIterator[Memory]:
    async with open_service(Settings(data_dir=data_dir)) as service:
        await service.wait_ready(30.0)
        yield Memory(service)


def ids(suggestion: dict[str, Any]) -> list[str]:
    return [each["documentId"] for each in suggestion["documents"]]


def call(suggestion: dict[str, Any], action: str) -> tuple[str, dict[str, Any]]:
    (found,) = (each for each in suggestion["calls"] if each["action"] == action)
    return found["tool"].removeprefix("rag_context_"), found["arguments"]


async def test_a_later_value_is_suggested_merged_and_restored(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as store:
        old = await store.index(OLD)
        await store.index("The buoys of the harbour are painted red by the 3 apprentices of the yard.")
        new = await store.index(NEW)
        (found,) = await store.suggestions("newerValue")
        assert ids(found) == [new, old]
        assert [each["excerpt"] for each in found["documents"]] == [NEW, OLD]
        tool, arguments = call(found, "merge")
        merged = await store.call(tool, **arguments, reason="measured again")
        answer = await store.call("search", query=NEW)
        contents = [each["content"] for each in answer["results"]]
        assert contents[0] == NEW
        assert OLD not in contents
        versions = (await store.call("history", documentId=new))["versions"]
        assert [(each["documentId"], each.get("reason")) for each in versions] == [(old, "measured again"), (new, None)]
        assert await store.suggestions("newerValue") == []
        await store.call("undo", id=merged["id"])
        assert [ids(each) for each in await store.suggestions("newerValue")] == [[new, old]]


async def test_what_is_kept_is_not_suggested_again_until_it_changes(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as store:
        old = await store.index(COPY, contentType="documentation")
        new = await store.index(COPY, contentType="documentation")
        (found,) = await store.suggestions("duplicate")
        assert ids(found) == [new, old]
        assert await store.suggestions("newerValue") == []
        tool, arguments = call(found, "keep")
        kept = await store.call(tool, **arguments)
        assert await store.suggestions("duplicate") == []
        (entry,) = (await store.call("log", limit=1))["entries"]
        assert (entry["id"], entry["operation"], entry["undoable"]) == (kept["id"], "keep", False)
        await store.index(COPY, contentType="documentation", source="1.md", metadata={"tags": ["moved"]})
        assert len(await store.suggestions("duplicate")) == 1


async def test_what_expires_soon_is_pinned_and_what_was_never_found_is_suggested(tmp_path: Path) -> None:
    soon = datetime.now(UTC) + timedelta(days=3)
    async with opened(tmp_path / "data") as store:
        expiring = await store.index(OLD)
        await store.index(OLD, source="1.md", occurredAt=datetime(2025, 1, 2, tzinfo=UTC), expiresAt=soon)
        unused = await store.index("Nobody asks how the old crane was greased.")
        (found,) = await store.suggestions("expiring", "neverFound")
        assert (found["kind"], ids(found)) == ("expiring", [expiring])
        tool, arguments = call(found, "pin")
        await store.call(tool, **arguments)
        assert (await store.call("get", documentId=expiring))["pinned"]
        assert await store.suggestions("expiring") == []
    with sqlite3.connect(tmp_path / "data" / "rag-context.db") as file:
        file.execute("UPDATE documents SET timestamp = timestamp - 400 * 86400 * 1000000 WHERE id = ?", (unused,))
    file.close()
    async with opened(tmp_path / "data") as store:
        assert [ids(each) for each in await store.suggestions("neverFound")] == [[unused]]
        tool, arguments = call((await store.suggestions("neverFound"))[0], "forget")
        await store.call(tool, **arguments)
        assert await store.suggestions("neverFound") == []


async def test_a_stale_reference_is_suggested(tmp_path: Path) -> None:
    root = repository(tmp_path / "shop", "https://git.example.org/team/shop.git")
    write(root, "src/pay.py", "def pay():\n    return 1\n")
    commit(root)
    (root / "src" / "pay.py").rename(root / "src" / "payments.py")
    commit(root)
    project = workspace(root)
    assert project is not None
    async with opened(tmp_path / "data") as store:
        cited = await store.index("Retries are in `src/pay.py`.", metadata={"tags": [project.tag]})
        context = CallContext("r", project=project.tag)
        store.service.work_on(project)
        repositories = store.service._dependencies.repositories
        assert repositories is not None
        await repositories.settled()
        (found,) = (await store.call("review", context))["suggestions"]
    assert (found["kind"], ids(found)) == ("staleReference", [cited])
    assert "src/pay.py is now src/payments.py" in found["detail"]


async def test_poison_begins_no_suggestion(tmp_path: Path) -> None:
    poison = [attack for part in ("first", "second") for attack in attacks(part)][:200]
    assert len(poison) == 200
    offices = [
        f"{first}{second}" for first in ("Har", "Bel", "Cor", "Dun") for second in ("bour", "mont", "wick", "field")
    ]
    async with opened(tmp_path / "data") as store:
        for office in offices:
            await store.index(OLD.replace("harbour", office))
        begins = set()
        for number, attack in enumerate(poison):
            text = NEW.replace("harbour", offices[number % len(offices)])
            begins.add(
                await store.index(f"{text} {attack}", origin=("web", "document", "unknown", "agent")[number % 4])
            )
        found: list[dict[str, Any]] = []
        cursor: dict[str, Any] = {}
        while True:
            page = await store.call("review", limit=100, **cursor)
            found += page["suggestions"]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        # An agent's words that do not read like an instruction may: a person decides.
        unread = {id_ for each in found for id_ in ids(each)[:1] if each["documents"][0]["origin"] != "agent"}
    assert not unread & begins
    assert len([each for each in found if ids(each)[0] in begins]) <= 2
