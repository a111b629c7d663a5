-- Whose words a document and its chunks are; found for older ones, and standing instructions marked again, by
-- stores/sqlite/migration.py.

ALTER TABLE documents ADD COLUMN origin TEXT;
ALTER TABLE chunks ADD COLUMN origin TEXT;
