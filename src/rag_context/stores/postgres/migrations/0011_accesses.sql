-- Who changed something or was rejected is recorded beside the errors, and kept for longer.

DROP INDEX rag_context.errors_by_time;
CREATE INDEX errors_by_level ON rag_context.errors (level, timestamp);
