"""From documents to one text for a model: three sections, every document under its own heading, with its path. Pure.

Whatever stands in a document stands below that document's heading, so a reader can tell of every sentence where it
came from.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rag_context.projects.demotion import demoted
from rag_context.projects.records import LinkedDocument, RetrievedDocument

DOCUMENT_LEVEL = 3
"""Level of the heading that each document stands under."""

TITLE_CHARS = 300

Count = Callable[[str], int]
"""How many tokens a text has."""


class Section(StrEnum):
    """The parts of a context, in their order."""

    CRITICAL = "## Critical Context (Always Relevant)"
    RELEVANT = "## Retrieved Context (By Relevance)"
    LINKED = "## Related Context (Linked Documents)"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A document's text as it stands in a context, and its tokens."""

    text: str
    tokens: int


Render = Callable[[str], Rendered]
"""Makes a document's content ready; the same content always gives the same."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A context. `omitted` are the paths of the documents that the budget left out, in the order of their place."""

    text: str
    tokens: int
    critical: tuple[RetrievedDocument, ...]
    relevant: tuple[RetrievedDocument, ...]
    linked: tuple[LinkedDocument, ...]
    omitted: tuple[str, ...]


def rendered(content: str, count: Count) -> Rendered:
    """A document's content, its headings below the document's own."""
    text = demoted(content, DOCUMENT_LEVEL)
    return Rendered(text, count(text))


def assemble(
    critical: Sequence[RetrievedDocument],
    relevant: Sequence[RetrievedDocument],
    linked: Sequence[LinkedDocument],
    *,
    render: Render,
    count: Count,
    max_tokens: int | None = None,
) -> Assembled:
    """Put a context together.

    Every document comes in once, where it is met first, and whole. With a budget, a document that does not fit any
    more is left out, and a later one that does fit comes in: critical ones before relevant before linked ones.

    Args:
        critical: what stands in front.
        relevant: what was found, the most relevant first.
        linked: what those link to, the nearest first.
        render: makes a content ready.
        count: counts tokens, of headings.
        max_tokens: most tokens of the whole context; None: no bound.
    """
    budget = _Budget(count, max_tokens)
    seen: set[str] = set()
    parts: list[str] = []
    kept: dict[Section, list[RetrievedDocument]] = {section: [] for section in Section}
    for section, document in _in_order(critical, relevant, linked):
        if document.path in seen:
            continue
        seen.add(document.path)
        opening = "" if kept[section] else f"{section}\n\n"
        head, body = f"{opening}{_head(document)}", render(document.content)
        if budget.admits(document.path, count(head) + body.tokens + budget.rule):
            kept[section].append(document)
            parts.append(f"{head}\n{body.text}\n\n---\n\n")
    return Assembled(
        text="".join(parts).rstrip("\n") + "\n" if parts else "",
        tokens=budget.spent,
        critical=tuple(kept[Section.CRITICAL]),
        relevant=tuple(kept[Section.RELEVANT]),
        linked=tuple(document for document in kept[Section.LINKED] if isinstance(document, LinkedDocument)),
        omitted=tuple(budget.omitted),
    )


class _Budget:
    """Tokens left, and who came too late."""

    def __init__(self, count: Count, max_tokens: int | None) -> None:
        self.rule = count("---")
        self.spent = 0
        self.omitted: list[str] = []
        self._max_tokens = max_tokens

    def admits(self, path: str, tokens: int) -> bool:
        """Take the tokens, if they are there."""
        if self._max_tokens is not None and self.spent + tokens > self._max_tokens:
            self.omitted.append(path)
            return False
        self.spent += tokens
        return True


def _in_order(
    critical: Sequence[RetrievedDocument], relevant: Sequence[RetrievedDocument], linked: Sequence[LinkedDocument]
) -> Iterator[tuple[Section, RetrievedDocument]]:
    yield from ((Section.CRITICAL, document) for document in critical)
    yield from ((Section.RELEVANT, document) for document in relevant)
    yield from ((Section.LINKED, document) for document in linked)


def _head(document: RetrievedDocument) -> str:
    lines = [
        f"### {_one_line(document.title)[:TITLE_CHARS] or 'Untitled'}",
        f"- **Path**: {_one_line(document.path)}",
        f"- **Type**: {_one_line(document.doc_type)}",
    ]
    if document.boosted_relevance_score > 0:
        lines.append(f"- **Relevance**: {document.boosted_relevance_score:.2f}")
    if isinstance(document, LinkedDocument):
        lines.append(f"- **Linked from**: {_one_line(document.linked_from)}")
    if document.superseded_by:
        lines.append(f"- **Superseded by**: {', '.join(map(_one_line, document.superseded_by))}")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """Names come from files: one with a line break in it must not begin a heading of its own."""
    return " ".join(text.split())
