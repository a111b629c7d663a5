-- What is read often of few rows: decisions to keep, and documents of a type by their age.

CREATE INDEX journal_kept ON journal (tenant, seq) WHERE action = 'keep';
CREATE INDEX documents_by_age ON documents (content_type, timestamp);
