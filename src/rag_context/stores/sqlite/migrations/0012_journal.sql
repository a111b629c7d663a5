-- What changed, in the transaction that changed it: documents move between places, and an entry says from where to
-- where. Those that are superseded or in the trash belong to tenants of their own (`domain.documents.Tenant.on`).

ALTER TABLE documents ADD COLUMN superseded_by INTEGER;  -- key of a document; it counts on its shelf alone
ALTER TABLE documents ADD COLUMN superseded_reason TEXT;
ALTER TABLE documents ADD COLUMN shelved_at INTEGER;
ALTER TABLE documents ADD COLUMN expires_at INTEGER;
ALTER TABLE documents ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
CREATE INDEX documents_superseded ON documents (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX documents_shelved ON documents (shelved_at) WHERE shelved_at IS NOT NULL;
CREATE INDEX documents_expiring ON documents (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE journal (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    tenant INTEGER NOT NULL REFERENCES tenants (key),
    moves TEXT NOT NULL,  -- JSON
    reason TEXT,
    undoes INTEGER
);
CREATE INDEX journal_by_tenant ON journal (tenant, seq);
CREATE INDEX journal_with_reason ON journal (seq) WHERE reason IS NOT NULL;

-- What was forgotten is not stored again.
CREATE TABLE tombstones (
    identity TEXT PRIMARY KEY,  -- id of the document
    content TEXT,               -- hash of the tenant's name and the content
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tombstones_by_content ON tombstones (content) WHERE content IS NOT NULL;
