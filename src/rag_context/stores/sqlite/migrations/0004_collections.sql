-- Collections: named sets of entries, each with a text, metadata and a vector. A key is never used twice: a
-- collection that was emptied, or made anew under an old name, has another one, and what hung on the old key is
-- swept away little by little. Texts and vectors stand apart, so that reading metadata touches neither.

CREATE TABLE collections (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    metadata TEXT NOT NULL,  -- JSON object
    embedding_provider TEXT,
    embedding_model TEXT,
    dimension INTEGER,
    created INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 0,  -- grows with every change of the entries
    entries INTEGER NOT NULL DEFAULT 0
);

-- `seq` is never used twice; an entry that is replaced gets a new one: what is newer than a reader's last one is
-- what it has not seen.
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL,
    id TEXT NOT NULL,
    metadata TEXT NOT NULL,  -- JSON object
    UNIQUE (collection, id)
);
CREATE INDEX entries_by_collection ON entries (collection);  -- in the order of `seq`

CREATE TABLE entry_texts (
    entry INTEGER PRIMARY KEY,
    text TEXT NOT NULL
);

CREATE TABLE entry_vectors (
    entry INTEGER PRIMARY KEY,
    vector BLOB NOT NULL  -- float32, little-endian
);

CREATE TABLE entry_deletions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL,
    id TEXT NOT NULL
);

CREATE TABLE discarded_collections (
    key INTEGER PRIMARY KEY
);

CREATE TRIGGER entries_added AFTER INSERT ON entries BEGIN
    UPDATE collections SET version = version + 1, entries = entries + 1 WHERE key = NEW.collection;
END;
CREATE TRIGGER entries_removed AFTER DELETE ON entries BEGIN
    DELETE FROM entry_texts WHERE entry = OLD.seq;
    DELETE FROM entry_vectors WHERE entry = OLD.seq;
    UPDATE collections SET version = version + 1, entries = entries - 1 WHERE key = OLD.collection;
END;
CREATE TRIGGER collections_removed AFTER DELETE ON collections BEGIN
    INSERT INTO discarded_collections VALUES (OLD.key);
END;
