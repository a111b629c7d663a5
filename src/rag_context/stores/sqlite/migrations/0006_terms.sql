-- Keyword search and filters work in memory: the text index goes, and a passage keeps its terms in a form that is read
-- many at a time. Every deletion of a chunk or a vector is listed by the chunk's key. An epoch grows when a reader must
-- read all chunks, or all vectors, again. (The terms of an older file are made by the program that migrates it.)

DROP TRIGGER passages_added;
DROP TRIGGER passages_removed;
DROP TABLE vocabulary;
DROP TABLE texts;
ALTER TABLE passages DROP COLUMN facets;
ALTER TABLE passages DROP COLUMN terms;
ALTER TABLE passages ADD COLUMN terms BLOB NOT NULL DEFAULT x'';  -- 8 bytes of hash and 2 of count each, ascending

DROP TABLE deletions;
CREATE TABLE deletions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk INTEGER NOT NULL
);
DROP TRIGGER vectors_removed;
CREATE TRIGGER vectors_removed AFTER DELETE ON vectors BEGIN
    INSERT INTO deletions (chunk) VALUES (OLD.chunk);
    UPDATE totals SET version = version + 1, vectors = vectors - 1;
END;
DROP TRIGGER chunks_removed;
CREATE TRIGGER chunks_removed AFTER DELETE ON chunks BEGIN
    INSERT INTO deletions (chunk) VALUES (OLD.key);
    UPDATE totals SET version = version + 1, chunks = chunks - 1, terms = terms - OLD.length;
END;

ALTER TABLE totals ADD COLUMN chunks_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE totals ADD COLUMN vectors_epoch INTEGER NOT NULL DEFAULT 0;
UPDATE totals SET forgotten = 0;
