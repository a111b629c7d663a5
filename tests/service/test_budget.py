"""maxTokens: an answer of bounded length, of complete passages."""

from rag_context.testing.fakes import WordTokenizer
from tests.service.harness import ServiceHarness


def words(text: str) -> int:
    return len(WordTokenizer().offsets(text))


async def filled(harness: ServiceHarness) -> ServiceHarness:
    for number in range(4):
        await harness.index(f"Fox number {number} hunts mice.", source=str(number))
    return harness


async def test_an_answer_is_cut_after_the_last_passage_that_fits(harness: ServiceHarness) -> None:
    whole = await (await filled(harness)).search("fox hunts mice")
    assert len(whole.results) == 4
    assert whole.omitted is None
    each = words(whole.results[0].content)
    cut = await harness.search("fox hunts mice", maxTokens=3 * each - 1)
    assert [result.chunk_id for result in cut.results] == [result.chunk_id for result in whole.results[:2]]
    assert cut.omitted == 2


async def test_what_just_fits_is_kept(harness: ServiceHarness) -> None:
    whole = await (await filled(harness)).search("fox hunts mice")
    total = sum(words(result.content) for result in whole.results)
    assert (await harness.search("fox hunts mice", maxTokens=total)).omitted == 0


async def test_where_not_even_one_fits_all_are_left_out_and_counted(harness: ServiceHarness) -> None:
    cut = await (await filled(harness)).search("fox hunts mice", maxTokens=1)
    assert (cut.results, cut.omitted, cut.fallback_level) == ([], 4, 1)


async def test_a_cached_answer_is_cut_to_each_callers_budget(harness: ServiceHarness) -> None:
    await (await filled(harness)).search("fox hunts mice", maxTokens=1)
    again = await harness.search("fox hunts mice")
    assert again.cached
    assert len(again.results) == 4
