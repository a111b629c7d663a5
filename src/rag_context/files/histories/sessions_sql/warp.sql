-- Answers are in a binary format: only the prompts are read.
SELECT json_object('sessionId', :id, 'cwd', max(working_directory)) FROM ai_queries
WHERE conversation_id = :id
UNION ALL SELECT line FROM (
    SELECT json_object('role', 'user', 'id', exchange_id, 'timestamp', start_ts,
        'content', json_extract(input, '$[0].Query.text')) AS line
    FROM ai_queries
    WHERE conversation_id = :id AND json_extract(input, '$[0].Query.text') IS NOT NULL ORDER BY start_ts)
