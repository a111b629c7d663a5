-- Who alone said a chunk of a conversation. Chunks from an earlier version get it, and conversations of two roles their
-- cuts at each change of role, when they are embedded again (`rag-context reindex`).

ALTER TABLE chunks ADD COLUMN speaker TEXT;
