WITH composer AS (
    SELECT CAST(value AS TEXT) AS value FROM cursorDiskKV WHERE key = 'composerData:' || :id
), bubble AS (
    SELECT header.key AS number, CAST(stored.value AS TEXT) AS value
    FROM composer, json_each(composer.value, '$.fullConversationHeadersOnly') AS header
    JOIN cursorDiskKV AS stored
        ON stored.key = 'bubbleId:' || :id || ':' || json_extract(header.value, '$.bubbleId')
    WHERE json_valid(CAST(stored.value AS TEXT))
    UNION ALL
    SELECT each.key, each.value FROM composer, json_each(composer.value, '$.conversation') AS each
)
SELECT json_object('sessionId', :id, 'title', json_extract(value, '$.name'),
    'cwd', (SELECT max(json_extract(value, '$.workspaceProjectDir')) FROM bubble))
FROM composer
UNION ALL SELECT line FROM (
    SELECT json_object('id', json_extract(value, '$.bubbleId'),
        'role', CASE json_extract(value, '$.type') WHEN 1 THEN 'user' WHEN 2 THEN 'assistant' END,
        'timestamp', coalesce(json_extract(value, '$.createdAt'), json_extract(value, '$.timestamp')),
        'content', json_extract(value, '$.text')) AS line
    FROM bubble ORDER BY number)
