-- Tool output may be megabytes: parts of other types are not read.
SELECT json_object('sessionId', id, 'title', title, 'cwd', directory,
    'driver', CASE WHEN parent_id IS NULL THEN '' ELSE 'subagent' END)
FROM session WHERE id = :id
UNION ALL SELECT line FROM (
    -- A fork gives the messages that it copies new ids, and leaves their times.
    SELECT json_object('id', '' || time_created, 'timestamp', time_created,
        'role', CASE WHEN json_extract(data, '$.summary') IS 1
            THEN 'system' ELSE json_extract(data, '$.role') END,
        'content', (
            SELECT json_group_array(json_object(
                'type', json_extract(data, '$.type'),
                'text', CASE WHEN json_extract(data, '$.type') = 'text' THEN json_extract(data, '$.text') END))
            FROM (SELECT data FROM part WHERE message_id = message.id ORDER BY id)
            WHERE json_extract(data, '$.type') IN ('text', 'reasoning')
                AND json_extract(data, '$.synthetic') IS NOT 1)) AS line
    FROM message WHERE session_id = :id ORDER BY time_created, id)
