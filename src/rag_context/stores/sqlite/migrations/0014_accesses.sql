-- Who changed something or was rejected is recorded beside the errors, and kept for longer.

DROP INDEX errors_by_time;
CREATE INDEX errors_by_level ON errors (level, timestamp);
