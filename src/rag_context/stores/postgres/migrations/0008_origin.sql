-- Whose words a document and its chunks are; found for older ones, and standing instructions marked again, by
-- stores/postgres/connection.py. Chunks without one have that of their document.

ALTER TABLE rag_context.documents ADD COLUMN origin text COLLATE "C";
ALTER TABLE rag_context.chunks ADD COLUMN origin text COLLATE "C";
