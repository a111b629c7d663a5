-- Whether a chunk holds a standing instruction of the user. In what earlier versions wrote this finds the usual forms of
-- `speakers.is_standing`: so few rows are rewritten, whose terms are indexed again.

ALTER TABLE rag_context.chunks ADD COLUMN standing boolean NOT NULL DEFAULT false;

UPDATE rag_context.chunks AS c SET standing = true
FROM rag_context.passages AS p
WHERE p.chunk = c.key AND c.content_type = 'chat'
AND (c.speaker IS NULL OR c.speaker NOT IN ('Assistant', 'System', 'Tool'))
AND p.text ~* ('(^|\n|[.!?:;>*\]]["”)]?\s)\s*([-*+•]\s+|\d{1,3}[.)]\s+)?((please|and|also|but|so|ok|okay|oh),?\s+)?'
    || '(always|never|from now on|in (the )?future|whenever|every ?time|remember to|when I ask)\y');

CREATE INDEX chunks_standing ON rag_context.chunks (tenant) WHERE standing;
