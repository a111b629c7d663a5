"""Retrieval: what is found, in what order, what stands in front, where links lead, and what is reported of it."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from rag_context.domain.documents import Tenant
from rag_context.errors import BackendUnavailableError, InvalidInputError
from rag_context.projects.document_lists import DocumentList, DocumentLists
from rag_context.projects.finding import Match, best_first, boost_of
from rag_context.projects.records import (
    CriticalInclusion,
    ProjectDocument,
    PromotionBoosts,
    PromotionLevel,
    RagContext,
    RetrievalOptions,
    RetrievedDocument,
)
from rag_context.projects.retrieval import LINKS_LOST, LIST_UNREADABLE, PASSAGES_ONLY, UNREAD, RetrievalService
from rag_context.search.chain import VECTOR_ONLY, WARNINGS
from rag_context.search.query import Level
from rag_context.testing import Fault
from tests.projects.retrieval_harness import OURS, RetrievalHarness

ASK = "database connection pool exhaustion"
ANY = RetrievalOptions(min_relevance_score=0.0)
DEAD = Fault(BackendUnavailableError("x", "connection refused"))
HANGS = Fault(hang=True)


@pytest.fixture
async def base() -> RetrievalHarness:
    made = RetrievalHarness()
    await made.add("problems/pool.md", "# Pool\n\nThe database connection pool exhaustion came from leaks.")
    await made.add("problems/slow.md", "# Slow\n\nA database connection was slow on Mondays.")
    await made.add("tools/psql.md", "# Psql\n\nConnect with psql, then list the tables.")
    return made


def paths(documents: tuple[RetrievedDocument, ...]) -> list[str]:
    return [document.path for document in documents]


async def test_documents_come_complete_the_most_relevant_first_and_without_front_matter(base: RetrievalHarness) -> None:
    text = "# Leaks\n\nDatabase connection pool exhaustion.\n\n## Later\n\nNothing of the question.\n"
    await base.add("problems/leak.md", text, title="Leaking", summary="It leaks", date="2026-01-31")
    result = await base.service.retrieve_relevant_documents(ASK, RetrievalOptions(min_relevance_score=0.1))
    (leak,) = (document for document in result.documents if document.path == "problems/leak.md")
    assert (leak.title, leak.summary, str(leak.date)) == ("Leaking", "It leaks", "2026-01-31")
    assert (leak.content, leak.char_count) == (text, len(text))
    assert result.total_matches >= len(result.documents)


async def test_documents_below_the_threshold_are_left_out(base: RetrievalHarness) -> None:
    everything = await base.service.retrieve_relevant_documents(ASK, ANY)
    scores = {document.path: document.raw_relevance_score for document in everything.documents}
    assert len(scores) == 3
    between = (scores["problems/pool.md"] + scores["problems/slow.md"]) / 2
    found = await base.service.retrieve_relevant_documents(ASK, RetrievalOptions(min_relevance_score=between))
    assert paths(found.documents) == ["problems/pool.md"]
    assert found.total_matches == 1


async def test_without_a_threshold_of_its_own_a_question_takes_the_models(base: RetrievalHarness) -> None:
    found = await base.service.retrieve_relevant_documents(ASK, RetrievalOptions())
    assert base.fake.model.calibration.threshold > 0
    assert "tools/psql.md" not in paths(found.documents)


@pytest.mark.parametrize(
    ("level", "boosts", "expected"),
    [
        (PromotionLevel.CRITICAL, PromotionBoosts(), 0.15),
        (PromotionLevel.IMPORTANT, PromotionBoosts(), 0.10),
        (PromotionLevel.STANDARD, PromotionBoosts(), 0.0),
        (PromotionLevel.IMPORTANT, PromotionBoosts(important=0.3), 0.3),
        (PromotionLevel.CRITICAL, None, 0.0),
    ],
)
def test_a_boost_is_what_it_is_set_to(level: PromotionLevel, boosts: PromotionBoosts | None, expected: float) -> None:
    assert boost_of(level, boosts) == expected


@pytest.mark.parametrize(("level", "gain"), [("important", 0.10), ("critical", 0.15)])
async def test_promotion_adds_its_boost_and_nothing_else(base: RetrievalHarness, level: str, gain: float) -> None:
    async def score() -> tuple[float, float]:
        found = await base.service.retrieve_relevant_documents(ASK, replace(ANY, boosts=PromotionBoosts(gain, gain)))
        (slow,) = (each for each in found.documents if each.path == "problems/slow.md")
        return slow.raw_relevance_score, slow.boosted_relevance_score

    before, _ = await score()
    await base.add("problems/slow.md", "# Slow\n\nA database connection was slow on Mondays.", promotion_level=level)
    raw, boosted = await score()
    assert raw == pytest.approx(before, abs=1e-9)
    assert boosted == pytest.approx(before + gain, abs=1e-9)


async def test_what_front_matter_says_of_level_type_and_date_is_not_searched(base: RetrievalHarness) -> None:
    await base.add("a.md", "Nothing.", doc_type="insight", date="2026-02-03", significance="correctness")
    for word in ("insight", "2026", "correctness"):
        found = await base.service.retrieve_relevant_documents(word, ANY)
        assert all(each.raw_relevance_score < 0.5 for each in found.documents if each.path == "a.md"), word


async def test_summary_and_tags_find_the_document_and_stand_in_no_passage(base: RetrievalHarness) -> None:
    await base.add("a.md", "Nothing.", summary="About zeppelins", tags="[airship, gondola]")
    for word in ("zeppelins", "airship", "gondola"):
        (found,) = (await base.service.retrieve_relevant_documents(word, RetrievalOptions(max_results=1))).documents
        assert found.path == "a.md"
        assert found.quote is not None
        assert (found.quote.text, found.quote.start_line) == ("Nothing.", 5)


async def test_a_document_is_quoted_by_its_best_passage_whatever_stands_before_it(base: RetrievalHarness) -> None:
    filler = "\n\n".join(
        f"Paragraph {number} has other words, which are of no use here at all." for number in range(36)
    )
    text = f"The database connection pool is old.\n\n{filler}\n\nThe database connection pool reached exhaustion."
    await base.add("long.md", f"# Long\n\n{text}")
    found = await base.service.list_relevant_documents(ASK, ANY)
    (long,) = (each for each in found.documents if each.path == "long.md")
    assert found.documents[0] is not long
    assert long.quote is not None
    assert long.quote.end_line == 3 + text.count("\n")


async def test_a_promoted_document_passes_one_that_is_a_little_more_relevant(base: RetrievalHarness) -> None:
    await base.add("problems/twin.md", "# Pool\n\nThe database connection pool exhaustion came from leaks often.")
    before = await base.service.retrieve_relevant_documents(ASK, ANY)
    await base.add(
        "problems/twin.md",
        "# Pool\n\nThe database connection pool exhaustion came from leaks often.",
        promotion_level="important",
    )
    after = await base.service.retrieve_relevant_documents(ASK, ANY)
    assert paths(before.documents)[0] == "problems/pool.md"
    assert paths(after.documents)[0] == "problems/twin.md"
    twin = after.documents[0]
    assert twin.boosted_relevance_score == pytest.approx(min(1.0, twin.raw_relevance_score + 0.10))


async def test_a_boost_lets_nothing_in_that_is_below_the_threshold(base: RetrievalHarness) -> None:
    await base.add("style/spaces.md", "# Spaces\n\nTwo spaces, never a tab.", promotion_level="important")
    options = RetrievalOptions(min_relevance_score=0.3, boosts=PromotionBoosts(important=1.0))
    assert "style/spaces.md" not in paths((await base.service.retrieve_relevant_documents(ASK, options)).documents)


async def test_doc_types_and_promotion_levels_are_filtered_by_the_store(base: RetrievalHarness) -> None:
    await base.add("insights/pool.md", "# Pools\n\nDatabase connection pool exhaustion.", promotion_level="important")
    service = base.service
    by_type = await service.retrieve_relevant_documents(ASK, RetrievalOptions(doc_types=("insight", "tool")))
    by_floor = await service.retrieve_relevant_documents(
        ASK, RetrievalOptions(min_promotion_level=PromotionLevel.IMPORTANT)
    )
    by_levels = await service.retrieve_relevant_documents(
        ASK, RetrievalOptions(min_relevance_score=0.0, promotion_levels=(PromotionLevel.STANDARD,), max_results=9)
    )
    assert paths(by_type.documents) == ["insights/pool.md"]
    assert paths(by_floor.documents) == ["insights/pool.md"]
    assert set(paths(by_levels.documents)) == {"problems/pool.md", "problems/slow.md", "tools/psql.md"}


async def test_levels_that_exclude_each_other_find_nothing_and_fail_nothing(base: RetrievalHarness) -> None:
    options = RetrievalOptions(min_promotion_level=PromotionLevel.CRITICAL, promotion_levels=(PromotionLevel.STANDARD,))
    found = await base.service.retrieve_relevant_documents(ASK, options)
    assert (found.documents, found.total_matches, found.label.level) == ((), 0, Level.PRIMARY)


def match(path: str, rank: float, place: int) -> Match:
    document = ProjectDocument(
        id=path, path=path, title=path, doc_type="document", promotion_level=PromotionLevel.STANDARD, char_count=0
    )
    return Match(document=document, rank=rank, raw=0.5, boosted=0.5, position=place)


def test_the_fused_score_orders_and_equals_keep_the_order_of_the_search() -> None:
    found = [match("code", 1.0, 0), match("near", 0.7, 2), match("boosted", 1.05, 3), match("far", 0.7, 1)]
    assert [each.document.path for each in best_first(found)] == ["boosted", "code", "far", "near"]


async def test_an_explicit_minimum_applies_to_the_holder_of_rare_terms_too(base: RetrievalHarness) -> None:
    await base.add("codes.md", "Restart the pump when ERR4711 shows up in the log, then wait a while for pressure.")
    found = await base.service.retrieve_relevant_documents("ERR4711", RetrievalOptions())
    assert paths(found.documents) == ["codes.md"]
    strict = await base.service.retrieve_relevant_documents("ERR4711", RetrievalOptions(min_relevance_score=0.99))
    assert strict.documents == ()


async def test_as_many_documents_as_requested_are_found_behind_one_that_fills_the_first_ranks(
    base: RetrievalHarness,
) -> None:
    part = "## Database connection pool exhaustion\n\n" + "Database connection pool exhaustion again. " * 30 + "\n\n"
    await base.add("big.md", "# Big\n\n" + part * 120)
    for number in range(4):
        await base.add(f"small-{number}.md", f"# Small {number}\n\nConnection trouble of kind {number}, seen once.")
    options = RetrievalOptions(min_relevance_score=0.0, max_results=6)
    found = await base.service.retrieve_relevant_documents(ASK, options)
    assert len(found.documents) == 6
    assert paths(found.documents).count("big.md") == 1


async def test_a_vector_finds_similar_documents_without_a_text(base: RetrievalHarness) -> None:
    vector = await base.fake.embed_query(ASK)
    base.embedder.fault = base.texts.fault = DEAD
    found = await base.service.retrieve_relevant_documents(vector * 7.0, RetrievalOptions(min_relevance_score=0.1))
    assert paths(found.documents)[0] == "problems/pool.md"
    assert (found.label.level, list(found.label.legs)) == (Level.PRIMARY, ["vector"])


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("", "Query cannot be empty"),
        (" \n", "Query cannot be empty"),
        (np.zeros(64, np.float32), "must not be zero"),
        (np.full(64, np.nan, np.float32), "finite"),
        (np.ones((1, 64), np.float32), "one row"),
        (np.ones(0, np.float32), "one row"),
        (np.ones(5, np.float32), "has 5 numbers, those of fake have 64"),
    ],
    ids=["blank", "space", "zero", "not finite", "a matrix", "empty", "another model's"],
)
async def test_an_invalid_question_is_rejected(base: RetrievalHarness, question: object, sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        await base.service.assemble_context(question, RetrievalOptions())  # type: ignore[arg-type]


async def test_superseded_documents_are_hidden_unless_requested_and_then_marked(base: RetrievalHarness) -> None:
    await base.add(
        "problems/pool-2.md", "# Pool\n\nDatabase connection pool exhaustion, anew.", supersedes="problems/pool.md"
    )
    hidden = await base.service.retrieve_relevant_documents(ASK, ANY)
    shown = await base.service.assemble_context(ASK, RetrievalOptions(min_relevance_score=0.0, include_superseded=True))
    assert "problems/pool.md" not in paths(hidden.documents)
    (old,) = (document for document in shown.relevant_documents if document.path == "problems/pool.md")
    assert old.superseded_by == ("problems/pool-2.md",)
    assert "- **Superseded by**: problems/pool-2.md" in shown.formatted_context


async def with_critical(base: RetrievalHarness) -> None:
    await base.add("rules/spaces.md", "# Spaces\n\nTwo spaces, never a tab.", promotion_level="critical")
    await base.add("rules/pool.md", "# Rule\n\nDatabase connection pool exhaustion.", promotion_level="critical")


async def test_what_was_written_later_is_hidden_and_replaces_nothing(base: RetrievalHarness) -> None:
    text = "The database connection pool exhaustion."
    await base.add("new.md", text, supersedes="old.md", date="2026-03-02")
    await base.add("old.md", f"See [the notes](linked.md). {text} It leaks.", date="2026-02-01")
    await base.add("rules.md", "Two spaces, never a tab.", promotion_level="critical", date="2026-03-03")
    await base.add("linked.md", "Notes.", date="2026-03-04")
    seen: dict[datetime | None, dict[str, tuple[str, ...]]] = {}
    for until in (None, datetime(2026, 3, 1, tzinfo=UTC)):
        options = RetrievalOptions(min_relevance_score=0.0, max_results=20, as_of=until)
        context = await base.service.assemble_context(ASK, options)
        assert not context.label.warnings
        seen[until] = {document.path: document.superseded_by for document in context.documents}
    assert seen[None].keys() >= {"new.md", "rules.md", "problems/pool.md"}
    assert "old.md" not in seen[None]
    assert seen[datetime(2026, 3, 1, tzinfo=UTC)] == {"old.md": ()}


async def test_critical_documents_stand_in_front_once_and_fill_no_place(base: RetrievalHarness) -> None:
    await with_critical(base)
    context = await base.service.assemble_context(ASK, RetrievalOptions(min_relevance_score=0.1, max_results=1))
    assert paths(context.critical_documents) == ["rules/pool.md", "rules/spaces.md"]
    assert paths(context.relevant_documents) == ["problems/pool.md"]
    assert context.formatted_context.count("- **Path**: rules/pool.md\n") == 1
    assert context.critical_documents[0].boosted_relevance_score > 0


async def test_critical_documents_that_the_search_did_not_return_have_their_relevance(base: RetrievalHarness) -> None:
    await with_critical(base)
    relevances = [
        {each.path: each.raw_relevance_score for each in context.critical_documents}
        for least in (0.0, 0.1, 1.0)
        for context in [await base.service.assemble_context(ASK, RetrievalOptions(min_relevance_score=least))]
    ]
    assert relevances[0] == relevances[1] == relevances[2]
    assert 0 < relevances[0]["rules/spaces.md"] < 0.1 < relevances[0]["rules/pool.md"]


@pytest.mark.parametrize(
    ("inclusion", "in_front", "found"),
    [
        (CriticalInclusion.RELEVANT, ["rules/pool.md"], ["problems/pool.md"]),
        (CriticalInclusion.NEVER, [], ["rules/pool.md"]),
    ],
)
async def test_critical_documents_may_be_requested_where_they_match_or_not_at_all(
    base: RetrievalHarness, inclusion: CriticalInclusion, in_front: list[str], found: list[str]
) -> None:
    await with_critical(base)
    options = RetrievalOptions(min_relevance_score=0.3, max_results=1, include_critical=inclusion)
    context = await base.service.assemble_context(ASK, options)
    assert (paths(context.critical_documents), paths(context.relevant_documents)) == (in_front, found)


async def test_critical_documents_keep_to_the_doc_types_requested_and_to_what_holds(base: RetrievalHarness) -> None:
    await with_critical(base)
    await base.add("tools/rule.md", "# Tool rule\n\nNo tabs.", promotion_level="critical")
    await base.add("tools/rule-2.md", "# New rule\n\nTabs.", promotion_level="critical", supersedes="tools/rule.md")
    context = await base.service.assemble_context(ASK, RetrievalOptions(doc_types=("tool",)))
    assert paths(context.critical_documents) == ["tools/rule-2.md"]


async def linked(base: RetrievalHarness) -> None:
    await base.add("problems/pool.md", "# Pool\n\nDatabase connection pool exhaustion. See [a](../a.md), [b](../b.md).")
    await base.add("a.md", "# A\n\nOn [c](c.md) and back to [pool](problems/pool.md), and [self](a.md).")
    await base.add("b.md", "# B\n\nSee [c](c.md) and https://example.com.")
    await base.add("c.md", "# C\n\nSee [d](d.md).")
    await base.add("d.md", "# D\n\nThe end, see [a](a.md).")


async def test_links_are_followed_breadth_first_each_document_once(base: RetrievalHarness) -> None:
    await linked(base)
    options = RetrievalOptions(max_results=1, max_link_depth=2)
    found = await base.service.retrieve_with_linked_docs(ASK, options)
    assert paths(found.documents) == ["problems/pool.md"]
    assert [(link.path, link.linked_from, link.link_depth) for link in found.linked_documents] == [
        ("a.md", "problems/pool.md", 1),
        ("b.md", "problems/pool.md", 1),
        ("c.md", "a.md", 2),
    ]


@pytest.mark.parametrize(("depth", "most"), [(0, 5), (1, 5), (2, 2), (9, 5), (2, 0)])
async def test_links_keep_to_depth_and_number(base: RetrievalHarness, depth: int, most: int) -> None:
    await linked(base)
    options = RetrievalOptions(max_results=1, max_link_depth=depth, max_linked_docs=most)
    found = (await base.service.retrieve_with_linked_docs(ASK, options)).linked_documents
    assert paths(found) == ["a.md", "b.md", "c.md", "d.md"][: min(most, (0, 2, 3, 4)[min(depth, 3)])]


async def test_a_linked_document_that_stands_in_front_is_not_repeated_and_still_leads_on(
    base: RetrievalHarness,
) -> None:
    await linked(base)
    await base.add("a.md", "# A\n\nOn [c](c.md).", promotion_level="critical")
    context = await base.service.assemble_context(ASK, RetrievalOptions(max_results=1, max_link_depth=2))
    assert paths(context.critical_documents) == ["a.md"]
    assert [(link.path, link.linked_from) for link in context.linked_documents] == [
        ("b.md", "problems/pool.md"),
        ("c.md", "a.md"),
    ]
    assert context.formatted_context.count("- **Path**: a.md\n") == 1


async def test_related_docs_are_links_where_that_is_switched_on(base: RetrievalHarness) -> None:
    await base.add(
        "problems/pool.md", "# Pool\n\nDatabase connection pool exhaustion.", related_docs="[../tools/psql.md]"
    )
    off = await base.service.retrieve_with_linked_docs(ASK, RetrievalOptions(max_results=1))
    on = await base.service.retrieve_with_linked_docs(ASK, RetrievalOptions(max_results=1, follow_related_docs=True))
    assert (paths(off.linked_documents), paths(on.linked_documents)) == ([], ["tools/psql.md"])


async def test_another_tenants_documents_are_never_seen(base: RetrievalHarness) -> None:
    other = Tenant(OURS.project, "feature", OURS.path_hash)
    await base.add("problems/pool.md", "# Theirs\n\nDatabase connection pool exhaustion.", tenant=other)
    await base.add("rules/theirs.md", "# Rule\n\nTheirs.", tenant=other, promotion_level="critical")
    ours = await base.service.assemble_context(ASK, ANY)
    theirs = await base.of(other).assemble_context(ASK, ANY)
    nobodys = await base.of(Tenant("nobody", "main", "0" * 16)).assemble_context(ASK, ANY)
    assert "Theirs" not in ours.formatted_context
    assert [document.title for document in theirs.documents] == ["Rule", "Theirs"]
    assert (nobodys.formatted_context, list(nobodys.documents)) == ("", [])


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_without_vectors_keyword_search_finds_the_documents_and_the_answer_says_so(
    base: RetrievalHarness, fault: Fault
) -> None:
    base.embedder.fault = fault
    context = await base.service.assemble_context(ASK, RetrievalOptions())
    assert context.label.level is Level.TEXT
    assert WARNINGS[Level.TEXT] in context.label.warnings
    assert paths(context.relevant_documents)[0] == "problems/pool.md"


async def test_a_vector_without_vectors_is_an_empty_answer_that_says_so(base: RetrievalHarness) -> None:
    vector = await base.fake.embed_query(ASK)
    base.vectors.fault = DEAD
    context = await base.service.assemble_context(vector, RetrievalOptions())
    assert (context.label.level, context.label.warnings) == (Level.EMPTY, (VECTOR_ONLY,))


async def test_where_nothing_can_be_searched_the_critical_documents_still_come(base: RetrievalHarness) -> None:
    await with_critical(base)
    base.embedder.fault = base.texts.fault = DEAD
    context = await base.service.assemble_context(ASK, RetrievalOptions())
    assert context.label.level is Level.EMPTY
    assert paths(context.critical_documents) == ["rules/pool.md", "rules/spaces.md"]
    assert context.relevant_documents == ()


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_documents_that_cannot_be_read_are_shown_by_what_was_found_of_them(fault: Fault) -> None:
    base = RetrievalHarness(deadline_s=0.4)
    await base.add("problems/pool.md", "# Pool\n\nThe database connection pool exhaustion came from leaks.")
    await base.add("rules/a.md", "# Rule\n\nNo tabs.", promotion_level="critical")
    await base.service.retrieve_relevant_documents(ASK, RetrievalOptions())
    base.reads.fault = fault
    context = await base.service.assemble_context(ASK, RetrievalOptions())
    assert paths(tuple(context.documents)) == ["problems/pool.md"]
    assert "came from leaks" in context.formatted_context
    assert set(context.label.warnings) == {
        PASSAGES_ONLY.format("problems/pool.md"),
        UNREAD.format("rules/a.md"),
        LINKS_LOST.format("problems/pool.md"),
    }


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_without_the_list_of_documents_results_describe_themselves(fault: Fault) -> None:
    base = RetrievalHarness(deadline_s=0.4)
    await base.add(
        "problems/pool.md", "# Pool\n\nThe database connection pool exhaustion came from leaks.", title="Leaks"
    )
    base.lists.fault = fault
    context = await base.service.assemble_context(ASK, RetrievalOptions())
    (document,) = context.documents
    assert (document.path, document.title, document.doc_type) == ("problems/pool.md", "Leaks", "problem")
    assert any(warning.startswith(LIST_UNREADABLE.partition("{")[0]) for warning in context.label.warnings)


class _EndlessLinks(DocumentLists):
    """DocumentLists whose documents have more links than anyone can wait for."""

    async def of(self, tenant: Tenant) -> DocumentList:
        """The list of the tenant."""
        known = await super().of(tenant)
        return _Endless(known.tenant, known.entries, known._reader)


class _Endless(DocumentList):
    async def links(self, document: ProjectDocument) -> tuple[ProjectDocument, ...]:
        """Never ends."""
        await asyncio.Event().wait()
        return (document,)


async def test_slow_links_do_not_cost_other_callers_their_links() -> None:
    base = RetrievalHarness(deadline_s=1.0)
    await base.add("problems/pool.md", f"# Pool\n\nThe {ASK} came from leaks.\n\n## Elsewhere\n\nNothing of it.")
    await base.add("rules/a.md", "# Rule\n\nNo tabs.", promotion_level="critical")
    base.reads.fault = Fault(delay_s=0.01)
    service = RetrievalService(replace(base.works, document_lists=_EndlessLinks(base.documents.port)), OURS)
    context = await service.assemble_context(ASK, ANY)
    assert context.label.warnings[0] == LINKS_LOST.format("problems/pool.md")
    assert not [warning for warning in context.label.warnings if "could not be read" in warning]
    assert {"rules/a.md", "problems/pool.md"} == set(paths(tuple(context.documents)))
    listed = await service.retrieve_with_linked_docs(ASK, ANY)
    assert "Nothing of it" in {document.path: document.content for document in listed.documents}["problems/pool.md"]
    assert PASSAGES_ONLY.format("problems/pool.md") not in listed.label.warnings


async def test_a_budget_is_kept_and_what_it_left_out_is_named(base: RetrievalHarness) -> None:
    whole = await base.service.assemble_context(ASK, ANY)
    tight = await base.service.assemble_context(
        ASK, RetrievalOptions(min_relevance_score=0.0, max_tokens=whole.tokens - 1)
    )
    assert _tokens(base, whole) == whole.tokens
    assert _tokens(base, tight) == tight.tokens < whole.tokens
    assert len(tight.omitted) == 1
    assert {*tight.omitted, *paths(tuple(tight.documents))} == set(paths(tuple(whole.documents)))


def _tokens(base: RetrievalHarness, context: RagContext) -> int:
    return len(base.fake.tokenizer.offsets(context.formatted_context))
