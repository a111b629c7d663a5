"""What a program pays for an import."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "pydantic", "httpx2", "tenacity", "onnxruntime", "starlette", "mcp", "tree_sitter", "tokenizers")


def loaded(statement: str) -> list[str]:
    """Which of the heavy libraries a statement brings in."""
    code = f"{statement}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_importing_the_package_loads_nothing() -> None:
    assert loaded("import rag_context") == []


def test_a_client_does_not_load_the_model_the_stores_or_the_server() -> None:
    assert loaded("from rag_context import Client, AsyncClient, open_context") == ["pydantic", "httpx2"]


def test_what_only_sends_over_http_loads_neither_retries_nor_arrays() -> None:
    assert loaded("from rag_context.client.async_http import AsyncHttp") == ["pydantic", "httpx2"]


def test_every_name_that_is_offered_is_there() -> None:
    import rag_context

    assert all(getattr(rag_context, name) is not None for name in rag_context.__all__)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = rag_context.nothing_of_this_name
