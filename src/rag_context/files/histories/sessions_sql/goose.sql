SELECT json_object('sessionId', id, 'title', description, 'cwd', working_dir) FROM sessions WHERE id = :id
UNION ALL SELECT line FROM (
    SELECT json_object('role', role, 'id', '' || id, 'timestamp', created_timestamp,
        'content', json(content_json)) AS line
    FROM messages WHERE session_id = :id AND json_valid(content_json) ORDER BY created_timestamp, id)
