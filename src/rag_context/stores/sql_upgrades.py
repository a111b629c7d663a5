"""What documents of earlier versions get when their tables are brought up to date, once for SQLite and PostgreSQL."""

from typing import Protocol

from rag_context.domain.documents import CHAT, Origin
from rag_context.domain.provenance import earlier_origin, origins
from rag_context.stores.sql_documents import DocumentTables

_CONTENT = "SELECT {content} FROM {schema}documents AS d {contents} WHERE d.{key} = $1"

_CHUNKS = """
SELECT c.key, c.{start}, c.{end}, c.speaker
FROM {schema}documents AS d {join} {schema}chunks AS c ON c.document = d.{document}
WHERE d.{key} = $1 ORDER BY c.position
"""

_SPEAKERS = f"""
SELECT DISTINCT c.document, c.speaker
FROM {{schema}}documents AS d {{join}} {{schema}}chunks AS c ON c.document = d.{{document}}
WHERE d.content_type = '{CHAT}' AND c.speaker IS NOT NULL
"""  # noqa: S608


class UpgradedTables(DocumentTables, Protocol):
    """The tables inside the transaction that brings them up to date."""

    async def execute(self, statement: str, *values: object) -> None: ...


async def find_origins(tables: UpgradedTables) -> None:
    """Give documents, and the chunks of the owner's conversations, an origin; mark the owner's instructions."""
    speakers: dict[object, set[str]] = {}
    for document, speaker in await tables.fetch(_SPEAKERS):
        speakers.setdefault(document, set()).add(speaker)
    keys: dict[Origin, list[int]] = {}
    statement = "SELECT {key}, {document}, content_type, session_id, source, thread FROM {schema}documents"
    for key, document, kind, session, source, thread in await tables.fetch(statement):
        origin = earlier_origin(kind, session, source, thread, speakers.get(document, set()))
        keys.setdefault(origin, []).append(key)
    for origin, of_origin in keys.items():
        await tables.execute("UPDATE {schema}documents SET origin = $1 WHERE {key} {among_2}", origin.value, of_origin)
    for key in keys.get(Origin.OWNER, ()):
        ((content,),) = await tables.fetch(_CONTENT, key)
        chunks = await tables.fetch(_CHUNKS, key)
        said = origins(content, CHAT, Origin.OWNER, [tuple(place) for _, *place in chunks])
        for (chunk, *_), (whose, is_standing) in zip(chunks, said, strict=True):
            marked = "UPDATE {schema}chunks SET origin = $2, standing = $3 WHERE key = $1"
            await tables.execute(marked, chunk, whose.value, is_standing)
