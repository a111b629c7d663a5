"""Makes a context of documents: each as a whole or, where it does not fit, by an excerpt.

An excerpt has the passages that answer the question and the passages around them in their sections. They are read one
by one, so that a large document costs no more than a small one.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rag_context.domain.provenance import text_start
from rag_context.domain.search import Passage
from rag_context.errors import BackendError
from rag_context.ports.models import Tokenizer
from rag_context.ports.reading import DocumentStore
from rag_context.projects import assembly
from rag_context.projects.records import Quote, RagContext
from rag_context.resilience.deadline import Deadline

HEAD_TOKENS = 24
"""The approximate cost of the line above a part, with its headings and line numbers."""

ROUNDS = 2
"""How often parts are extended on both sides, by one passage each time."""

FULL_SHARE = 0.9

CHARS_PER_TOKEN = 8
"""The most characters per token, as a rule: the beginning of a text is cut to so many before tokens are counted."""

DENSE_CHARS_PER_TOKEN = 3.5
"""The fewest characters per token in most texts; if the best passage has fewer, its density is used for the document.
Passages are selected by this estimate and counted exactly once, at the end, because counting is the main cost."""

QUOTE_CHARS = 300
HEADING_CHARS = 200
GAP = "[...]"

RENDER_S = 0.1
"""The least time for rendering the found documents, even when the deadline is over."""

UNREADY = "Only parts are shown, because the document could not be rendered in time: {}"


@dataclass(frozen=True, slots=True)
class Text:
    """A document's text without its front matter, and its first line in the file."""

    body: str
    first_line: int


def text_of(content: str) -> Text:
    start = text_start(content)
    return Text(content[start:], 1 + content.count("\n", 0, start))


def quote_of(passage: Passage) -> Quote:
    span = passage.chunk.span
    return Quote(_shortened(passage.chunk.text), span.heading, span.start_line, span.end_line)


def opening_quote(content: str, first_line: int) -> Quote:
    """The beginning of a text without passages in the results; `first_line` is that of the text in its file."""
    shown = _shortened(content[:QUOTE_CHARS])
    return Quote(shown, "", first_line, first_line + content[: len(shown)].rstrip().count("\n"))


def opening(
    content: str, first_line: int, tokens: int, renderer: assembly.Renderer, whole: assembly.Rendered | None = None
) -> assembly.Rendered | None:
    """The beginning of a text in at most so many tokens, in whole lines if possible; its density is that of `whole`."""
    made = _opened(_likely(content, tokens, whole), first_line, tokens, renderer)
    if made is not None:
        return made
    cut = _cut(content[: CHARS_PER_TOKEN * max(tokens, 0)], tokens, renderer.tokenizer)
    return _opened(cut, first_line, tokens, renderer)


def _likely(content: str, tokens: int, whole: assembly.Rendered | None) -> str:
    """The lines at the beginning that most likely have so many tokens; none without the rendered text."""
    if whole is None:
        return ""
    likely = content[: int(FULL_SHARE * _density(whole) * max(tokens, 0))]
    return likely[: likely.rfind("\n") + 1]


def _opened(text: str, first_line: int, tokens: int, renderer: assembly.Renderer) -> assembly.Rendered | None:
    if not text.strip():
        return None
    (made,) = renderer.render([text])
    lines = (first_line, first_line + text.rstrip().count("\n"))
    return replace(made, lines=(lines,), chars=len(text)) if made.tokens <= tokens else None


@dataclass(frozen=True, slots=True)
class Excerpts:
    documents: DocumentStore
    renderer: assembly.Renderer
    deadline: Deadline
    texts: Mapping[str, Text] = field(default_factory=dict)

    async def assembled(
        self,
        entries: Sequence[assembly.ContextEntry],
        passages: Mapping[str, Sequence[Passage]],
        max_tokens: int | None,
        warn: Callable[[str, str], None],
    ) -> RagContext:
        """Assemble the context; a document that does not fit as a whole is represented by its best parts.

        Passages are by path, the best first; `warn` is called with a sentence and a path.
        """
        rendered = await self._with_texts(assembly.distinct(entries), max_tokens, warn)
        slots = assembly.allocate(rendered, self.renderer.count, max_tokens)
        partly = {slot.entry.document.path: slot for slot in slots if slot.tokens is not None}
        found = {
            path: (passages[path], slot.tokens)
            for path, slot in partly.items()
            if slot.tokens is not None and passages.get(path)
        }
        others = [slot for path, slot in partly.items() if path not in found]
        excerpted, opened = await asyncio.gather(self.of(found), asyncio.to_thread(self._openings, others))
        parts = {**excerpted, **opened}
        shown = [
            replace(slot.entry, whole=parts[path]) if (path := slot.entry.document.path) in parts else slot.entry
            for slot in slots
        ]
        return assembly.assemble(shown, rendered, self.renderer.count, max_tokens)

    async def of(self, shares: Mapping[str, tuple[Sequence[Passage], int]]) -> dict[str, assembly.Rendered | None]:
        """The excerpts of documents, each of its best passages within its tokens; None if these are too few."""
        if not shares:
            return {}
        selections = await asyncio.to_thread(self._selections, shares)
        for number in range(ROUNDS):
            extensible = [each for each in selections.values() if each.kept and each.spent <= FULL_SHARE * each.tokens]
            near = await self._near(extensible) if extensible else []
            # A list and not `any`, which would stop after the first one that was extended.
            if not [each for each in extensible if each.extend(near, beyond_section=number == 0)]:
                break
        return await asyncio.to_thread(self._rendered_all, selections)

    async def _with_texts(
        self, entries: Sequence[assembly.ContextEntry], max_tokens: int | None, warn: Callable[[str, str], None]
    ) -> list[assembly.ContextEntry]:
        """The entries with their rendered texts, as many as can be rendered in time."""
        first = sorted(entries, key=lambda each: each.section is not assembly.ContextSection.RELEVANT)
        fitting = {
            each.document.path: each.document.content
            for each in first
            if each.document.document_id in self.texts and assembly.may_fit(each.document.char_count, max_tokens)
        }
        missing = [content for content in fitting.values() if self.renderer.ready(content) is None]
        if missing:
            with suppress(TimeoutError):  # the thread continues, and the next retrieval finds them rendered
                async with asyncio.timeout(max(self.deadline.remaining_s, RENDER_S)):
                    await asyncio.to_thread(self.renderer.render, missing)
        found = []
        for entry in entries:
            path = entry.document.path
            whole = self.renderer.ready(fitting[path]) if path in fitting else None
            if whole is None and path in fitting:
                warn(UNREADY, path)
            found.append(replace(entry, whole=whole))
        return found

    def _openings(self, slots: Sequence[assembly.Slot]) -> dict[str, assembly.Rendered | None]:
        """The beginnings of documents that do not fit as a whole and have no passages in the results."""
        read = [
            (slot.entry, text, slot.tokens)
            for slot in slots
            if slot.tokens is not None and (text := self.texts.get(slot.entry.document.document_id)) is not None
        ]
        # Counted in one batch; `opening` has them from the renderer's cache.
        self.renderer.render([_likely(text.body, tokens, entry.whole) for entry, text, tokens in read])
        return {
            entry.document.path: opening(text.body, text.first_line, tokens, self.renderer, entry.whole)
            for entry, text, tokens in read
        }

    def _selections(self, shares: Mapping[str, tuple[Sequence[Passage], int]]) -> "dict[str, _Selection]":
        best = self.renderer.render([found[0].chunk.text for found, _ in shares.values()])
        selections = {}
        for (name, (found, tokens)), first in zip(shares.items(), best, strict=True):
            selections[name] = selection = _Selection(found[0], tokens, min(DENSE_CHARS_PER_TOKEN, _density(first)))
            for passage in found:
                selection.select(passage, passage.chunk.span.heading, HEAD_TOKENS)
        return selections

    def _rendered_all(self, selections: "Mapping[str, _Selection]") -> dict[str, assembly.Rendered | None]:
        # The parts of all documents are counted in one batch; below, the renderer has them in its caches.
        parts = [_parts(each.kept) for each in selections.values()]
        self.renderer.render([part.text for each in parts for part in each])
        self.renderer.count([_around(each) for each in parts if each])
        return {
            name: self._fitted(each.kept, each.tokens) if each.kept else self._trimmed(each.best, each.tokens)
            for name, each in selections.items()
        }

    def _fitted(self, kept: dict[int, Passage], tokens: int) -> assembly.Rendered | None:
        """Render the passages, without the last added ones if the headings of the parts need their tokens."""
        while kept:
            made = self._joined(kept)
            if made.tokens <= tokens:
                return made
            if len(kept) == 1:
                return self._trimmed(next(iter(kept.values())), tokens)
            # The last one: passages were added best first, then their surroundings.
            kept.popitem()
        return None

    def _joined(self, kept: dict[int, Passage]) -> assembly.Rendered:
        parts = _parts(kept)
        made = self.renderer.render([part.text for part in parts])
        text = f"\n\n{GAP}\n\n".join(
            f"{_head(part)}\n\n{each.text}".rstrip() for part, each in zip(parts, made, strict=True)
        )
        (around,) = self.renderer.count([_around(parts)])
        lines = tuple((part.start_line, part.end_line) for part in parts)
        return assembly.Rendered(
            text, around + sum(each.tokens for each in made), lines, sum(len(part.text) for part in parts)
        )

    async def _near(self, extensible: Sequence["_Selection"]) -> list[Passage]:
        """The passages directly before and after the selected ones; none if the store fails."""
        ends = [end for each in extensible for end in each.ends()]
        kept = {passage.chunk.id for each in extensible for passage in each.kept.values()}
        try:
            with self.deadline.applied():
                near = await self.documents.neighbours(ends)
                refs = [ref for each in near.values() for ref in (each.before, each.after) if ref is not None]
                missing = [id_ for id_ in dict.fromkeys(ref.id for ref in refs) if id_ not in kept]
                passages = await self.documents.passages(missing) if missing else {}
        except BackendError:
            return []
        return [passages[id_] for id_ in missing if id_ in passages]

    def _trimmed(self, passage: Passage, tokens: int) -> assembly.Rendered | None:
        """As much of one passage as fits."""
        span = passage.chunk.span
        (heading,) = self.renderer.count([_head(quote_of(passage))])
        budget = tokens - heading
        if budget < assembly.LEAST_TOKENS:
            return None
        text = _cut(passage.chunk.text, budget, self.renderer.tokenizer)
        end_line = span.start_line + text.rstrip().count("\n")
        shown = Quote(text, span.heading, span.start_line, end_line)
        made = f"{_head(shown)}\n\n{assembly.demoted(text, assembly.DOCUMENT_LEVEL)}".rstrip()
        (count,) = self.renderer.count([made])
        return assembly.Rendered(made, count, ((span.start_line, end_line),), len(text)) if count <= tokens else None


@dataclass(slots=True)
class _Selection:
    """The passages that are selected from a document, by position, each with the heading of its section."""

    best: Passage
    tokens: int
    density: float
    spent: int = 0
    kept: dict[int, Passage] = field(default_factory=dict)
    headings: dict[int, str] = field(default_factory=dict)

    def select(self, passage: Passage, heading: str, further_tokens: int = 0) -> bool:
        """Select a passage if it fits; returns whether it does."""
        cost = math.ceil(len(passage.chunk.text) / self.density) + further_tokens
        if self.spent + cost > self.tokens:
            return False
        self.kept[passage.chunk.position], self.headings[passage.chunk.position] = passage, heading
        self.spent += cost
        return True

    def ends(self) -> list[str]:
        """Ids of the passages with an unselected neighbour."""
        return [passage.chunk.id for at, passage in self.kept.items() if {at - 1, at + 1} - self.kept.keys()]

    def extend(self, near: Sequence[Passage], *, beyond_section: bool) -> bool:
        """Select those of the passages that are of this document and fit; returns whether there were any."""
        grown = False
        for passage in near:
            position = passage.chunk.position
            if passage.document_id != self.best.document_id or position in self.kept:
                continue
            heading = self.headings.get(position - 1, self.headings.get(position + 1, ""))
            if beyond_section or _is_within(passage.chunk.span.heading, heading):
                grown = self.select(passage, heading) or grown
        return grown


def _density(made: assembly.Rendered) -> float:
    return max(1, len(made.text)) / max(1, made.tokens)


def _parts(kept: Mapping[int, Passage]) -> list[Quote]:
    """The selected passages of a document as the stretches of its text that they make up; overlaps count once."""
    parts: list[Quote] = []
    end = 0
    for position in sorted(kept):
        chunk, span = kept[position].chunk, kept[position].chunk.span
        if parts and position - 1 in kept:
            before = parts.pop()
            text = before.text + chunk.text[max(0, end - span.start) :]
            parts.append(replace(before, text=text, end_line=span.end_line))
        else:
            parts.append(Quote(chunk.text, span.heading, span.start_line, span.end_line))
            end = span.start
        end = max(end, span.end)
    return parts


def _around(parts: Sequence[Quote]) -> str:
    """What an excerpt has beside the text of its parts."""
    return "\n".join([*map(_head, parts), *[GAP] * (len(parts) - 1)])


def _head(quote: Quote) -> str:
    heading = " ".join(quote.heading.split())[:HEADING_CHARS]
    lines = f"lines {quote.start_line}-{quote.end_line}"
    return f"**{heading}** ({lines})" if heading else f"({lines})"


def _is_within(heading: str, section: str) -> bool:
    """Whether a heading path is in a section, or above it."""
    return heading == section or heading.startswith(f"{section} > ") or section.startswith(f"{heading} > ")


def _cut(text: str, tokens: int, tokenizer: Tokenizer) -> str:
    """The beginning of a text of so many tokens, cut at the last line end if that leaves at least half of them."""
    offsets = tokenizer.offsets(text)
    if len(offsets) <= tokens:
        return text
    cut = text[: offsets[tokens - 1][1]] if tokens > 0 else ""
    line = cut.rfind("\n")
    return cut[: line + 1] if line > len(cut) // 2 else cut


def _shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= QUOTE_CHARS else f"{text[: QUOTE_CHARS - 1].rstrip()}\u2026"
