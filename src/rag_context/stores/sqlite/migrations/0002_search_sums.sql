-- What the searches of each ten minutes add up to, so that a month of them is summed up at once. Written in the
-- transaction that writes the records; a slot is the number of its ten minutes since 1970.

CREATE TABLE search_sums (
    slot INTEGER PRIMARY KEY,
    queries INTEGER NOT NULL,
    latency_ms REAL NOT NULL,
    cache_hits INTEGER NOT NULL,
    fallbacks INTEGER NOT NULL,
    histogram BLOB NOT NULL  -- pairs of bin and count, uint32, little-endian, by bin
);

CREATE TABLE search_tallies (
    slot INTEGER NOT NULL,
    kind TEXT NOT NULL,  -- agent, level or game
    value NOT NULL,      -- text or number, as it came
    queries INTEGER NOT NULL,
    PRIMARY KEY (slot, kind, value)
) WITHOUT ROWID;
