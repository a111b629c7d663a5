-- When something was said or written, beside when it was indexed. A document from an earlier version has the latter,
-- unless its text says more (stores/sqlite/migration.py); a chunk without a time of its own has its document's.

ALTER TABLE documents ADD COLUMN occurred_at INTEGER;
ALTER TABLE documents ADD COLUMN message_times TEXT;  -- JSON list of pairs: first character, time
ALTER TABLE chunks ADD COLUMN occurred_at INTEGER;

UPDATE documents SET occurred_at = timestamp;
CREATE INDEX documents_by_event ON documents (tenant, occurred_at);
