-- A name of its own for every index, by which caches that several share tell them apart.
INSERT OR IGNORE INTO meta VALUES ('index', lower(hex(randomblob(16))));
