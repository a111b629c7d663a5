-- Whether a chunk holds a standing instruction of the user; found in older chunks by stores/sqlite/migration.py.

ALTER TABLE chunks ADD COLUMN standing INTEGER NOT NULL DEFAULT 0;
