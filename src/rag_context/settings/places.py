"""Backends and where an index is, as people read them."""

from urllib.parse import urlsplit

from rag_context.settings import Settings

TITLES = {
    "embedded": "embedded",
    "postgres": "PostgreSQL",
    "qdrant": "Qdrant",
    "chroma": "Chroma",
    "mongodb": "MongoDB",
    "redis": "Redis",
}


def place_of(settings: Settings) -> str:
    """Where the index of these settings is, as people read it: without a password."""
    stores = settings.stores
    parts = urlsplit(stores.postgres_url or "")
    places = {
        "embedded": str(settings.data_dir),
        "postgres": f"PostgreSQL at {parts.netloc.rpartition('@')[2]}{parts.path}",
    }
    return " and ".join(dict.fromkeys(places.get(kind, TITLES[kind]) for kind in (stores.documents, stores.vectors)))
