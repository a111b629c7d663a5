-- What is read often of few rows: decisions to keep, and documents of a type by their age.

CREATE INDEX journal_kept ON rag_context.journal (tenant, seq) WHERE action = 'keep';
CREATE INDEX documents_by_age ON rag_context.documents (content_type, timestamp);
