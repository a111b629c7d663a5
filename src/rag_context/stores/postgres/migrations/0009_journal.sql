-- What changed, in the transaction that changed it: documents move between places, and an entry says from where to
-- where. Those that are superseded or in the trash belong to tenants of their own (`domain.documents.Tenant.on`).

ALTER TABLE rag_context.documents
    ADD COLUMN superseded_by bigint,  -- sequence of a document; it counts on its shelf alone
    ADD COLUMN superseded_reason text,
    ADD COLUMN shelved_at bigint,
    ADD COLUMN expires_at bigint,
    ADD COLUMN pinned boolean NOT NULL DEFAULT false;
CREATE INDEX documents_numbered ON rag_context.documents (sequence);
CREATE INDEX documents_superseded ON rag_context.documents (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX documents_shelved ON rag_context.documents (shelved_at) WHERE shelved_at IS NOT NULL;
CREATE INDEX documents_expiring ON rag_context.documents (expires_at) WHERE expires_at IS NOT NULL;

-- A document that leaves its id to another one keeps its chunks and its statistics.
ALTER TABLE rag_context.chunks
    DROP CONSTRAINT chunks_document_fkey,
    ADD CONSTRAINT chunks_document_fkey FOREIGN KEY (document) REFERENCES rag_context.documents (id)
        ON DELETE CASCADE ON UPDATE CASCADE;
ALTER TABLE rag_context.retrievals
    DROP CONSTRAINT retrievals_document_fkey,
    ADD CONSTRAINT retrievals_document_fkey FOREIGN KEY (document) REFERENCES rag_context.documents (id)
        ON DELETE CASCADE ON UPDATE CASCADE;

CREATE TABLE rag_context.journal (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    tenant integer NOT NULL REFERENCES rag_context.tenants (key),
    moves text NOT NULL,  -- JSON
    reason text,
    undoes bigint
);
CREATE INDEX journal_by_tenant ON rag_context.journal (tenant, seq);
CREATE INDEX journal_with_reason ON rag_context.journal (seq) WHERE reason IS NOT NULL;

-- What was forgotten is not stored again.
CREATE TABLE rag_context.tombstones (
    identity text COLLATE "C" PRIMARY KEY,  -- id of the document
    content text,                           -- hash of the tenant's name and the content
    at bigint NOT NULL
);
CREATE INDEX tombstones_by_content ON rag_context.tombstones (content) WHERE content IS NOT NULL;
