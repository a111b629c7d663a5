"""What a worker sends on to the first one, and how the metrics of several become one text."""

import json

import pytest

from rag_context.server.peers import labelled, needs_first

QUERIES = b"""# HELP rag_queries_total Searches
# TYPE rag_queries_total counter
rag_queries_total{agent="a \\"b\\"",level="1"} %d.0
# HELP rag_vectors_total Vectors in the index
# TYPE rag_vectors_total gauge
rag_vectors_total 7.0
"""


def mcp(name: object, arguments: object = None) -> bytes:
    """A call of a tool over MCP."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return json.dumps(message).encode()


@pytest.mark.parametrize(
    ("path", "query", "body"),
    [
        ("/tools/activate_project", b"", b"{}"),
        ("/tools/rag_query", b"", b'{"query": "x"}'),
        ("/tools/rag_context_reindex", b"", b""),
        ("/tools/rag_context_search", b"", b'{"query": "x", "\\u0070roject": "shop"}'),
        ("/tools/rag_context_list", b"project=shop", b""),
        ("/mcp", b"structured=true", mcp("list_projects")),
        ("/mcp", b"", mcp("rag_context_search", {"query": "x", "project": "shop"})),
        ("/mcp", b"", mcp("rag_context_reindex", {})),
    ],
)
def test_requests_that_only_the_first_worker_can_answer_are_sent_to_it(path: str, query: bytes, body: bytes) -> None:
    assert needs_first(path, query, body)


@pytest.mark.parametrize(
    ("path", "query", "body"),
    [
        ("/tools/rag_context_search", b"", b'{"query": "project"}'),
        ("/tools/rag_context_search", b"", b'{"query": "x", "project": null}'),
        ("/tools/rag_context_list", b"limit=3", b""),
        ("/tools/no_such_tool", b"", b'{"project": "shop"}'),
        ("/tools/rag_context_search", b"", b"not JSON"),
        ("/mcp", b"", mcp("rag_context_search", {"query": "list_projects"})),
        ("/mcp", b"", mcp({"list_projects": 1})),
        ("/mcp", b"", b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"name": "list_projects"}}'),
        ("/mcp", b"", b'["list_projects"]'),
        ("/mcp", b"", b"\xff"),
    ],
)
def test_any_worker_answers_the_rest(path: str, query: bytes, body: bytes) -> None:
    assert not needs_first(path, query, body)


def test_metrics_of_several_workers_are_one_valid_text() -> None:
    text = labelled({1: QUERIES % 3, 2: QUERIES % 4, 3: None}).decode()
    assert text.count("# TYPE rag_queries_total counter") == 1
    assert 'rag_queries_total{agent="a \\"b\\"",level="1",worker="1"} 3.0' in text
    assert 'rag_queries_total{agent="a \\"b\\"",level="1",worker="2"} 4.0' in text
    assert 'rag_vectors_total{worker="2"} 7.0' in text
    assert [f'rag_worker_up{{worker="{number}"}} {up}' in text for number, up in ((1, 1.0), (2, 1.0), (3, 0.0))] == [
        True,
        True,
        True,
    ]
