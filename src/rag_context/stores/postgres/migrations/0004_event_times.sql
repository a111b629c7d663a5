-- When something was said or written; null where that is when it was indexed, as in all that earlier versions wrote. So
-- no row is rewritten, whose terms would all be indexed again.

ALTER TABLE rag_context.documents
    ADD COLUMN occurred_at bigint,
    ADD COLUMN message_times text;  -- JSON list of pairs: first character, time
ALTER TABLE rag_context.chunks ADD COLUMN occurred_at bigint;

CREATE INDEX documents_by_event ON rag_context.documents (tenant, (coalesce(occurred_at, timestamp)));
DROP INDEX rag_context.chunks_by_time;
CREATE INDEX chunks_by_event ON rag_context.chunks (tenant, (coalesce(occurred_at, timestamp)));
