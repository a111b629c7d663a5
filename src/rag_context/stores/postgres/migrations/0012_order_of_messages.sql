-- Messages of a conversation follow each other by when they were said, not by when they were stored.

DROP INDEX rag_context.chunks_by_thread;
CREATE INDEX chunks_by_thread
    ON rag_context.chunks (tenant, thread, coalesce(occurred_at, timestamp), sequence, position)
    WHERE thread IS NOT NULL;
