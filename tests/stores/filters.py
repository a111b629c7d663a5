"""What a filter means, in plain Python; and documents and filters to try it on."""

from hypothesis import strategies as st

from rag_context.domain.documents import DEFAULT_TENANT, Document, Metadata, Origin, Tenant
from rag_context.domain.search import Filter
from tests.stores.builders import NOON, Stores, document, minutes

MOST_DOCUMENTS = 25
TENANTS = (DEFAULT_TENANT, Tenant("p", "main", "aa"), Tenant("p", "dev", "aa"))
KINDS = ("chat", "code")
SESSIONS = ("s1", "s2", "ſ2")
SOURCES = ("/a/x.md", "/a/xy.md", "/a", "/b%", "/b%/ü.md", "/B%/ü.md", "/\U0010ffff")
PREFIXES = ("/a", "/a/", "/b%", "/b_", "/b%/ü", "/\U0010ffff", "x", "")
NAMES = (None, "one", "two", "One")
TAGS = ("red", "green", 'b"lue', "")


def passes(document: Document, where: Filter) -> bool:
    """Whether `where` lets chunks of `document` through."""
    metadata = document.metadata
    equal = (
        (where.content_type, document.content_type),
        (where.session_id, document.session_id),
        (where.category, metadata.category),
        (where.game, metadata.game),
        (where.source, document.source),
    )
    return (
        document.tenant == where.tenant
        and all(asked is None or asked == value for asked, value in equal)
        and document.source.startswith(where.source_prefix or "")
        and set(where.tags) <= set(metadata.tags)
        and all(set(group) & set(metadata.tags) for group in where.any_tags)
        and (not where.agents or document.metadata.agent in where.agents)
        and document.id not in where.without_documents
        and (not where.origins or document.origin in where.origins)
        and (where.since is None or document.occurred_at >= where.since)
        and (where.until is None or document.occurred_at < where.until)
    )


def optional(values: tuple[str, ...]) -> st.SearchStrategy[str | None]:
    return st.one_of(st.none(), st.none(), st.sampled_from(values))


tags = st.lists(st.sampled_from(TAGS), max_size=2, unique=True).map(tuple)
tag_groups = st.lists(
    st.lists(st.sampled_from((*TAGS, "nowhere")), min_size=1, max_size=2, unique=True).map(tuple), max_size=2
).map(tuple)
origins = st.sampled_from(Origin)
moments = st.integers(0, 20).map(lambda count: NOON + minutes(count))

filters = st.builds(
    Filter,
    tenant=st.sampled_from(TENANTS),
    content_type=optional(KINDS),
    session_id=optional(SESSIONS),
    category=optional(("one", "two", "nowhere")),
    game=optional(("one", "two", "nowhere")),
    source=optional(SOURCES),
    source_prefix=optional(PREFIXES),
    agents=st.one_of(
        st.just(()), st.lists(st.sampled_from(("one", "two", "nowhere")), max_size=2, unique=True).map(tuple)
    ),
    tags=tags,
    any_tags=tag_groups,
    since=st.one_of(st.none(), moments),
    until=st.one_of(st.none(), moments),
    origins=st.one_of(st.just(()), st.just(()), origins.map(Origin.and_above)),
    without_documents=st.lists(
        st.integers(0, 5).map(lambda number: document(f"document {number}").id), max_size=2, unique=True
    ).map(tuple),
)

metadata = st.builds(
    Metadata, agent=st.sampled_from(NAMES), tags=tags, category=st.sampled_from(NAMES), game=st.sampled_from(NAMES)
)


@st.composite
def corpora(draw: st.DrawFn, words: st.SearchStrategy[str]) -> list[Document]:
    """Documents whose contents are drawn from `words`, most of them in the default tenant."""
    return [
        document(
            f"document {number}",
            content=draw(words),
            tenant=draw(st.sampled_from((DEFAULT_TENANT, *TENANTS))),
            content_type=draw(st.sampled_from(KINDS)),
            session_id=draw(st.sampled_from(SESSIONS)),
            source=draw(st.sampled_from(SOURCES)),
            metadata=draw(metadata),
            timestamp=NOON,
            occurred_at=draw(moments),
            origin=draw(origins),
        )
        for number in range(draw(st.integers(1, MOST_DOCUMENTS)))
    ]


async def remove_examples(store: Stores) -> None:
    """Empty the store of what an earlier example, failed or not, left there."""
    for number in range(MOST_DOCUMENTS):
        await store.documents.delete(document(f"document {number}").id)
