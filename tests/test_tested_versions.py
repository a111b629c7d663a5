"""The pages of the stores name the versions that the tests run with."""

import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.servers.postgres import binaries
from tests.servers.redis import redis_binary

DOCS = Path(__file__).resolve().parents[1] / "docs"


def printed(program: str) -> str:
    """The version that a program prints of itself."""
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+(\.\d+)+", output)
    assert found, output
    return found[0]


def pgvector(major: str) -> str:
    (control,) = binaries(major).parent.rglob("vector.control")
    (found,) = re.findall(r"default_version = '(.*)'", control.read_text(encoding="utf-8"))
    return str(found)


def rows(page: str) -> Iterator[tuple[str, str]]:
    """The first two cells of each row of the page's tables, as they are printed."""
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3:
            yield cells[1], cells[2]


@pytest.mark.parametrize(
    ("page", "what", "package"),
    [
        ("stores-qdrant.md", "client", "qdrant-client"),
        ("stores-qdrant.md", "engine", "qdrant-edge-py"),
        ("stores-mongodb.md", "server", "SecantusDB"),
        ("stores-mongodb.md", "client", "pymongo"),
        ("stores-redis-chroma.md", "client", "redis"),
        ("postgresql.md", "client", "asyncpg"),
    ],
)
def test_a_package_is_the_installed_one(page: str, what: str, package: str) -> None:
    assert (what, f"{package} {version(package)}") in rows(page)


def test_redis_is_the_binary_of_the_tests() -> None:
    assert ("Redis", printed(redis_binary())) in rows("stores-redis-chroma.md")


def test_chroma_is_the_installed_one() -> None:
    assert ("Chroma", version("chromadb")) in rows("stores-redis-chroma.md")


@pytest.mark.parametrize("major", ["16", "18"])
def test_postgresql_is_the_binary_of_the_tests(major: str) -> None:
    server = printed(str(binaries(major) / "postgres"))

    assert ("PostgreSQL", f"{server} with pgvector {pgvector(major)}") in rows("postgresql.md")
