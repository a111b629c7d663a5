-- Each tenant has counters of its own: what one stores changes neither scores nor labels of another. A row of `changes`
-- says whose it is; without a tenant it is one of the whole index, after which `epoch` grows.

ALTER TABLE rag_context.tenants
    ADD COLUMN version bigint NOT NULL DEFAULT 0,   -- number of changes
    ADD COLUMN documents bigint NOT NULL DEFAULT 0,
    ADD COLUMN chunks bigint NOT NULL DEFAULT 0,
    ADD COLUMN terms bigint NOT NULL DEFAULT 0,
    ADD COLUMN turnover bigint NOT NULL DEFAULT 0;  -- chunks added and removed
ALTER TABLE rag_context.changes ADD COLUMN tenant integer;
ALTER TABLE rag_context.state ADD COLUMN epoch bigint NOT NULL DEFAULT 0;

UPDATE rag_context.tenants AS t
SET documents = d.number
FROM (SELECT tenant, count(*) AS number FROM rag_context.documents GROUP BY tenant) AS d
WHERE t.key = d.tenant;
UPDATE rag_context.tenants AS t
SET chunks = c.number, terms = c.terms
FROM (SELECT tenant, count(*) AS number, sum(length) AS terms FROM rag_context.chunks GROUP BY tenant) AS c
WHERE t.key = c.tenant;
