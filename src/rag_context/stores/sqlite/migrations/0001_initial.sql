-- Times are microseconds since 1970 (UTC). Long texts stand apart from documents and chunks, so that the rows
-- that filters read stay small. Counters and the text index follow by trigger: nobody can forget them.

CREATE TABLE tenants (
    key INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    branch TEXT NOT NULL,
    path_hash TEXT NOT NULL,
    UNIQUE (project, branch, path_hash)
);

CREATE TABLE documents (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    tenant INTEGER NOT NULL REFERENCES tenants (key),
    content_type TEXT NOT NULL,
    session_id TEXT NOT NULL,
    source TEXT NOT NULL,
    title TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    timestamp INTEGER NOT NULL,
    agent TEXT,
    category TEXT,
    game TEXT,
    decision_id TEXT,
    tags TEXT NOT NULL,   -- JSON list, in the writer's order
    extra TEXT NOT NULL,  -- JSON object
    thread TEXT,
    similarity_hash INTEGER NOT NULL,  -- 64 bits, signed
    status TEXT NOT NULL CHECK (status IN ('pending', 'indexed'))
);

CREATE INDEX documents_by_session ON documents (tenant, session_id);
CREATE INDEX documents_by_source ON documents (tenant, source);
CREATE INDEX documents_by_time ON documents (tenant, timestamp);
CREATE INDEX documents_by_thread ON documents (tenant, thread) WHERE thread IS NOT NULL;
CREATE INDEX documents_pending ON documents (status) WHERE status = 'pending';

-- Two hashes of 64 bits within 3 bits of each other agree in at least one of four bands of 16.
CREATE INDEX documents_band_0 ON documents (tenant, similarity_hash & 65535) WHERE similarity_hash <> 0;
CREATE INDEX documents_band_1 ON documents (tenant, (similarity_hash >> 16) & 65535) WHERE similarity_hash <> 0;
CREATE INDEX documents_band_2 ON documents (tenant, (similarity_hash >> 32) & 65535) WHERE similarity_hash <> 0;
CREATE INDEX documents_band_3 ON documents (tenant, (similarity_hash >> 48) & 65535) WHERE similarity_hash <> 0;

CREATE TABLE contents (
    document INTEGER PRIMARY KEY REFERENCES documents (key),
    content TEXT NOT NULL
);

CREATE TABLE document_tags (
    document INTEGER NOT NULL REFERENCES documents (key),
    tag TEXT NOT NULL,
    PRIMARY KEY (document, tag)
) WITHOUT ROWID;

CREATE TABLE retrievals (
    document INTEGER PRIMARY KEY REFERENCES documents (key),
    query_count INTEGER NOT NULL,
    last_retrieved INTEGER NOT NULL
);

-- Keys are never used twice: whoever remembers what a chunk holds need not ask again.
CREATE TABLE chunks (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    document INTEGER NOT NULL REFERENCES documents (key),
    position INTEGER NOT NULL,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    heading TEXT NOT NULL,
    length INTEGER NOT NULL  -- number of terms
);

CREATE INDEX chunks_by_document ON chunks (document, position);

CREATE TABLE passages (
    chunk INTEGER PRIMARY KEY REFERENCES chunks (key),
    text TEXT NOT NULL,
    context TEXT NOT NULL,
    terms TEXT NOT NULL,  -- every term between two spaces of its own
    facets TEXT NOT NULL  -- one word for each value that a filter may ask for
);

-- `seq` is never used twice: what is newer than a reader's last one is what it has not seen.
CREATE TABLE vectors (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk INTEGER NOT NULL UNIQUE REFERENCES chunks (key),
    vector BLOB NOT NULL  -- float32, little-endian
);

CREATE TABLE deletions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk TEXT NOT NULL
);

-- The terms are made by our own analyser: only the spaces between them separate, nothing is folded.
CREATE VIRTUAL TABLE texts USING fts5 (
    terms, facets, content = 'passages', content_rowid = 'chunk', tokenize = "ascii tokenchars '_'"
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (texts, row);

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE totals (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,    -- grows with every change of the index
    documents INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    vectors INTEGER NOT NULL,
    terms INTEGER NOT NULL,
    forgotten INTEGER NOT NULL   -- deletions up to this one are no longer listed
);
INSERT INTO totals VALUES (1, 0, 0, 0, 0, 0, 0, 0);

CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
    UPDATE totals SET version = version + 1, documents = documents + 1, pending = pending + (NEW.status = 'pending');
END;
CREATE TRIGGER documents_changed AFTER UPDATE ON documents BEGIN
    UPDATE totals
    SET version = version + 1, pending = pending + (NEW.status = 'pending') - (OLD.status = 'pending');
END;
CREATE TRIGGER documents_removed AFTER DELETE ON documents BEGIN
    UPDATE totals SET version = version + 1, documents = documents - 1, pending = pending - (OLD.status = 'pending');
END;

CREATE TRIGGER chunks_added AFTER INSERT ON chunks BEGIN
    UPDATE totals SET version = version + 1, chunks = chunks + 1, terms = terms + NEW.length;
END;
CREATE TRIGGER chunks_removed AFTER DELETE ON chunks BEGIN
    UPDATE totals SET version = version + 1, chunks = chunks - 1, terms = terms - OLD.length;
END;

CREATE TRIGGER passages_added AFTER INSERT ON passages BEGIN
    INSERT INTO texts (rowid, terms, facets) VALUES (NEW.chunk, NEW.terms, NEW.facets);
END;
CREATE TRIGGER passages_removed AFTER DELETE ON passages BEGIN
    INSERT INTO texts (texts, rowid, terms, facets) VALUES ('delete', OLD.chunk, OLD.terms, OLD.facets);
END;

CREATE TRIGGER vectors_added AFTER INSERT ON vectors BEGIN
    UPDATE totals SET version = version + 1, vectors = vectors + 1;
END;
CREATE TRIGGER vectors_removed AFTER DELETE ON vectors BEGIN
    INSERT INTO deletions (chunk) SELECT id FROM chunks WHERE key = OLD.chunk;
    UPDATE totals SET version = version + 1, vectors = vectors - 1;
END;

CREATE TABLE searches (
    key INTEGER PRIMARY KEY,
    timestamp INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    query TEXT NOT NULL,
    results_count INTEGER NOT NULL,
    latency_ms REAL NOT NULL,
    embedding_latency_ms REAL,
    vector_latency_ms REAL,
    text_latency_ms REAL,
    level INTEGER NOT NULL,
    cache_hit INTEGER NOT NULL,
    agent TEXT NOT NULL,
    content_type TEXT,
    category TEXT,
    game TEXT,
    error TEXT
);
-- Holds all that a summary reads, so that it never touches the wide rows.
CREATE INDEX searches_by_time ON searches (timestamp, latency_ms, level, cache_hit, agent, game);

CREATE TABLE errors (
    key INTEGER PRIMARY KEY,
    timestamp INTEGER NOT NULL,
    level TEXT NOT NULL,
    component TEXT NOT NULL,
    operation TEXT NOT NULL,
    message TEXT NOT NULL,
    request_id TEXT,
    context TEXT NOT NULL  -- JSON object
);
CREATE INDEX errors_by_time ON errors (timestamp);
