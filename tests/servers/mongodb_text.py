"""Text indexes in front of a server that has none: a proxy that speaks MongoDB's wire protocol.

It understands what a text index takes part in (`createIndexes`, `listIndexes`, `dropIndexes`, `drop`, and `$text`
in `find`, `aggregate` and `count`) and passes everything else on as it is. `$text` means what MongoDB's manual
says: any of the words, stemmed, without stop words; quoted phrases must occur; `-word` must not. Scores are
weighted counts, as far from MongoDB's own as any test may notice.

It also lets one `findAndModify` through at a time: the server behind it tells several at once of the same record what
was there before the first of them, and MongoDB tells each what it found. And it rejects what is beyond MongoDB's
limits, and fails on command (`mongodb_limits`).
"""

import asyncio
import re
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import Stemmer

from tests.servers.mongodb_limits import CHANGING_INDEXES, LIMITED, FailPoint, failure, refusal
from tests.servers.mongodb_wire import (
    Command,
    command_of,
    message_of,
    name_of,
    read_message,
    request_id,
    whole_command_of,
)

KEPT_IN = "_text_indexes"
"""Collection in which a database's text indexes are remembered, so that they outlive a crash as others do."""

STOP_WORDS = frozenset(
    ("a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "is", "it", "not", "of", "the")
)
_TOUCHED = (b"$text", b"createIndexes", b"listIndexes", b"dropIndexes", b"\x02drop\x00", b"topologyVersion")
_WORD = re.compile(r"[^\W_]+")
_FIND_AND_MODIFY = b"\x02findAndModify\x00"
_READING = (b"\x02find\x00", b"\x02aggregate\x00", b"\x02count\x00", b"\x12getMore\x00", b"\x10hello\x00")
"""How commands begin that change nothing."""

_FIRST_ELEMENT = 25
"""Where the name of a command begins: behind the headers of the message, of its section and of the document."""
_SCORE = "__textScore"
_NO_INDEX = {"ok": 0.0, "errmsg": "text index required for $text query", "code": 27, "codeName": "IndexNotFound"}


@dataclass(frozen=True, slots=True)
class Search:
    """The terms and phrases of a `$search`."""

    stems: frozenset[str]
    excluded: frozenset[str]
    phrases: tuple[str, ...]


def parsed(text: str) -> Search:
    """`"phrases"` and `-words` as MongoDB reads them; all else are terms of which any will do."""
    phrases = tuple(_folded(phrase) for phrase in re.findall(r'"([^"]*)"', text))
    plain = re.sub(r'"[^"]*"', lambda match: f" {match[0][1:-1]} ", text)
    excluded = re.findall(r"(?<!\S)-([^\W_]+)", plain)
    wanted = re.sub(r"(?<!\S)-[^\W_]+", " ", plain)
    return Search(frozenset(_stems(wanted)), frozenset(_stems(" ".join(excluded))), phrases)


def score(search: Search, document: Mapping[str, Any], weights: Mapping[str, int]) -> float:
    """0 where the document does not match."""
    found = 0.0
    texts = [(weight, text) for path, weight in weights.items() for text in _texts(document, path.split("."))]
    for weight, text in texts:
        stems = _counted(text)
        if search.excluded & stems.keys():
            return 0.0
        found += weight * sum(0.5 + 0.5 * stems[stem] / stems.total() for stem in search.stems if stem in stems)
    for phrase in search.phrases:
        if not any(phrase in _folded(text) for _, text in texts):
            return 0.0
    return found


@lru_cache(maxsize=20_000)
def _counted(text: str) -> Counter[str]:
    """The stems of a text, remembered: every search looks at every document."""
    return Counter(_stems(text))


def _stems(text: str) -> list[str]:
    words = [word for word in _WORD.findall(_folded(text)) if word not in STOP_WORDS]
    stems: list[str] = Stemmer.Stemmer("english").stemWords(words)
    return stems


def _folded(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c))


def _texts(value: Any, path: list[str]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _texts(item, path)
    elif not path and isinstance(value, str):
        yield value
    elif path and isinstance(value, dict):
        yield from _texts(value.get(path[0]), path[1:])


class Kept:
    """What was read for searches, read again after every change: all changes come by here."""

    def __init__(self) -> None:
        self._changes = 0
        self._kept: dict[str, tuple[int, list[Command]]] = {}

    @asynccontextmanager
    async def changing(self, message: bytes) -> AsyncIterator[None]:
        """A read before the end of a change may be without it."""
        if message.startswith(_READING, _FIRST_ELEMENT):
            yield
            return
        try:
            yield
        finally:
            self._changes += 1

    async def of(self, question: str, read: Callable[[], Awaitable[list[Command]]]) -> list[Command]:
        """The answer to a question, as it is now."""
        begun = self._changes
        at, answer = self._kept.get(question, (-1, []))
        if at != begun:
            answer = await read()
            self._kept[question] = (begun, answer)
        return answer


class Session:
    """One client's connection and the one to the server behind it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        one_by_one: asyncio.Lock,
        kept: Kept,
        failing: FailPoint,
        indexes: dict[str, list[Command]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._one_by_one = one_by_one
        self._kept = kept
        self._failing = failing
        self._indexes = indexes
        self._number = 1 << 30

    async def relay(self, message: bytes) -> bytes | None:
        """The server's answer to a message as it stands."""
        self._writer.write(message)
        await self._writer.drain()
        return await read_message(self._reader)

    async def run(self, command: Mapping[str, Any]) -> Command:
        """The server's answer to a command of the proxy's own."""
        self._number += 1
        answer = await self.relay(message_of(command, request=self._number))
        if answer is None:
            raise ConnectionResetError("the server behind the proxy is gone")
        decoded = command_of(answer)
        assert decoded is not None
        return decoded

    async def answer(self, message: bytes) -> bytes | None:
        """The answer to a client's message."""
        name = name_of(message)
        if name == "configureFailPoint":
            return message_of(
                self._failing.configure(whole_command_of(message)), request=1, answers=request_id(message)
            )
        fails = self._failing.take(name)
        if fails is not None and fails.get("closeConnection"):
            return None
        if fails is not None and "errorCode" in fails:
            failed = {**failure(fails["errorCode"], "", "fail point"), "errorLabels": fails.get("errorLabels", [])}
            return message_of(failed, request=1, answers=request_id(message))
        async with self._kept.changing(message):
            rejected = await self._refusal(message) if name in LIMITED else None
            if rejected is not None:
                return message_of(rejected, request=1, answers=request_id(message))
            answer = await self._answer(message)
        if name in CHANGING_INDEXES:
            self._indexes.clear()
        if fails is None or answer is None or "writeConcernError" not in fails:
            return answer
        late = {**(command_of(answer) or {}), "writeConcernError": fails["writeConcernError"]}
        return message_of(late, request=1, answers=request_id(message))

    async def _refusal(self, message: bytes) -> Command | None:
        """The rejection of a command that MongoDB forbids and the server behind the proxy does not."""
        command = whole_command_of(message)
        name = next(iter(command))
        if name == "aggregate":
            return refusal(command, ())

        asked = f"{command['$db']}.{command[name]}"
        if asked not in self._indexes:
            listed = await self.run({"listIndexes": command[name], "$db": command["$db"]})
            self._indexes[asked] = list(listed["cursor"]["firstBatch"]) if listed.get("ok") else []
        return refusal(command, self._indexes[asked])

    async def _answer(self, message: bytes) -> bytes | None:
        if message.startswith(_FIND_AND_MODIFY, _FIRST_ELEMENT):
            async with self._one_by_one:
                return await self.relay(message)
        command = command_of(message) if any(sign in message for sign in _TOUCHED) else None
        if command is None:
            return _without_streaming(await self.relay(message))
        match next(iter(command)):
            case "createIndexes":
                answer = await self._create(command)
            case "listIndexes":
                answer = await self._list(command)
            case "dropIndexes":
                answer = await self._drop_indexes(command)
            case "drop":
                await self._forget(command, command["drop"])
                answer = await self.run(command)
            case "find" | "aggregate" | "count":
                answer = await self._searched(command)
            case _:
                return _without_streaming(await self.relay(message))
        return message_of(answer, request=1, answers=request_id(message))

    async def _create(self, command: Command) -> Command:
        texts = [index for index in command["indexes"] if "text" in index["key"].values()]
        plain = [index for index in command["indexes"] if index not in texts]
        name = command["createIndexes"]
        for index in texts:
            known = await self._known(command, name)
            if known is not None and (known["weights"], known["name"]) != (index.get("weights"), index["name"]):
                return {"ok": 0.0, "errmsg": "only one text index", "code": 85, "codeName": "IndexOptionsConflict"}
            entry = {"_id": name, "name": index["name"], "weights": index.get("weights") or _unweighted(index["key"])}
            await self._remember(command, entry)
        if not plain:
            return {"ok": 1.0, "numIndexesBefore": 1, "numIndexesAfter": 2}
        return await self.run({**command, "indexes": plain})

    async def _list(self, command: Command) -> Command:
        answer = await self.run(command)
        known = await self._known(command, command["listIndexes"])
        if known is not None and answer.get("ok"):
            index = {
                "v": 2,
                "key": {"_fts": "text", "_ftsx": 1},
                "name": known["name"],
                "weights": known["weights"],
                "default_language": "english",
                "language_override": "language",
                "textIndexVersion": 3,
            }
            answer["cursor"]["firstBatch"].append(index)
        return answer

    async def _drop_indexes(self, command: Command) -> Command:
        known = await self._known(command, command["dropIndexes"])
        if known is not None and command["index"] in ("*", known["name"]):
            await self._forget(command, command["dropIndexes"])
            if command["index"] != "*":
                return {"ok": 1.0, "nIndexesWas": 2}
        return await self.run(command)

    async def _searched(self, command: Command) -> Command:
        name = next(iter(command))
        holder = _holder(command)
        if holder is None or "$text" not in holder:
            return await self.run(command)
        known = await self._known(command, command[name])
        if known is None:
            return dict(_NO_INDEX)
        found = await self._matching(command, command[name], parsed(holder["$text"]["$search"]), known["weights"])
        if name == "aggregate" and not found:
            return {"ok": 1.0, "cursor": {"id": 0, "ns": f"{command['$db']}.{command[name]}", "firstBatch": []}}
        asked = {key: value for key, value in holder.items() if key != "$text"}
        condition = {"$and": [{"_id": {"$in": list(found)}}, asked]} if asked else {"_id": {"$in": list(found)}}
        scores = {"$arrayElemAt": [[*found.values(), 0.0], {"$indexOfArray": [{"$literal": list(found)}, "$_id"]}]}
        if name == "aggregate":
            stages = [{"$match": condition}, {"$addFields": {_SCORE: scores}}, *_scored(command["pipeline"][1:])]
            return await self.run({**command, "pipeline": [*stages, {"$project": {_SCORE: 0}}]})
        return await self.run({**command, "filter" if name == "find" else "query": condition})

    async def _matching(
        self, command: Command, collection: str, search: Search, weights: Mapping[str, int]
    ) -> dict[Any, float]:
        fields = dict.fromkeys(weights, 1)
        asked = {"find": collection, "projection": fields, "batchSize": 1_000_000, "$db": command["$db"]}
        scored = [(each["_id"], score(search, each, weights)) for each in await self._all(asked)]
        return {id_: points for id_, points in scored if points > 0.0}

    async def _all(self, asked: Command) -> list[Command]:
        async def read() -> list[Command]:
            found: list[Command] = (await self.run(asked))["cursor"]["firstBatch"]
            return found

        return await self._kept.of(repr(asked), read)

    async def _known(self, command: Command, collection: str) -> Command | None:
        kept = await self._all({"find": KEPT_IN, "filter": {"_id": collection}, "$db": command["$db"]})
        return kept[0] if kept else None

    async def _remember(self, command: Command, entry: Command) -> None:
        change = {"q": {"_id": entry["_id"]}, "u": entry, "upsert": True}
        await self.run({"update": KEPT_IN, "updates": [change], "$db": command["$db"]})

    async def _forget(self, command: Command, collection: str) -> None:
        await self.run({"delete": KEPT_IN, "deletes": [{"q": {"_id": collection}, "limit": 1}], "$db": command["$db"]})


def _holder(command: Command) -> Command | None:
    """The filter that may hold `$text`."""
    match command:
        case {"aggregate": _, "pipeline": [{"$match": filter_}, *_]}:
            pass
        case {"find": _, "filter": filter_} | {"count": _, "query": filter_}:
            pass
        case _:
            return None
    return dict(filter_)


def _scored(value: Any) -> Any:
    """The stages with the score in place of `{"$meta": "textScore"}`."""
    if isinstance(value, list):
        return [_scored(item) for item in value]
    if isinstance(value, dict) and "$sort" in value:
        order = {
            (_SCORE if item == _META else key): (-1 if item == _META else item) for key, item in value["$sort"].items()
        }
        return {"$sort": order}
    if value == _META:
        return f"${_SCORE}"
    if isinstance(value, dict):
        return {key: _scored(item) for key, item in value.items()}
    return value


_META = {"$meta": "textScore"}


def _unweighted(key: Mapping[str, Any]) -> dict[str, int]:
    return {path: 1 for path, kind in key.items() if kind == "text"}


def _without_streaming(answer: bytes | None) -> bytes | None:
    """An answer to `hello` without the field that makes drivers ask for a stream of more."""
    if answer is None or b"topologyVersion" not in answer:
        return answer
    decoded = command_of(answer)
    if decoded is None:
        return answer
    decoded.pop("topologyVersion", None)
    (answers,) = (int.from_bytes(answer[8:12], "little", signed=True),)
    return message_of(decoded, request=request_id(answer), answers=answers)


@asynccontextmanager
async def text_proxy(port: int, upstream: int) -> AsyncIterator[int]:
    """Serve on `port` (0: any) in front of the server at `upstream`; gives the port."""

    one_by_one, kept, failing = asyncio.Lock(), Kept(), FailPoint()
    indexes: dict[str, list[Command]] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", upstream)
        session = Session(behind_reader, behind_writer, one_by_one, kept, failing, indexes)
        with suppress(ConnectionError):
            while (message := await read_message(reader)) is not None:
                answer = await session.answer(message)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        for each in (writer, behind_writer):
            each.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        yield server.sockets[0].getsockname()[1]
