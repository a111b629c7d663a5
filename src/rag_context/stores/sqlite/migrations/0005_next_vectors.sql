-- New vectors while they are made beside those that answer. Complete, this table takes the place of `vectors`, under
-- its name and with its triggers, and so has the same form.

CREATE TABLE next_vectors (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk INTEGER NOT NULL UNIQUE REFERENCES chunks (key),
    vector BLOB NOT NULL  -- float32, little-endian
);

CREATE TRIGGER chunks_replaced AFTER DELETE ON chunks BEGIN
    DELETE FROM next_vectors WHERE chunk = OLD.key;
END;
