-- An entry of such an index has at most 2 704 bytes, and a source of 1 024 characters can have 4 096: their beginnings
-- are indexed, and conditions compare these first (stores/postgres/rows.py).

DROP INDEX rag_context.documents_by_source;
DROP INDEX rag_context.chunks_by_source;
CREATE INDEX documents_by_source ON rag_context.documents (tenant, left(source, 256));
CREATE INDEX chunks_by_source ON rag_context.chunks (tenant, left(source, 256));
