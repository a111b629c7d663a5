"""What is embedded with a chunk and not returned."""

from rag_context.domain.documents import Chunk, Span
from rag_context.ingest.chunk_context import CONTEXT_TOKENS, context_of
from rag_context.testing import WordTokenizer

TOKENIZER = WordTokenizer()


def test_title_and_headings_that_the_text_does_not_contain_are_its_context() -> None:
    context = context_of("Pump manual", "Pump manual > Care > Weekly", "Oil the bearings.", TOKENIZER)
    assert context == "Pump manual > Care > Weekly"


def test_what_the_text_says_itself_is_not_repeated() -> None:
    text = "# Pump manual\n\n## Care\n\nOil the bearings."
    assert context_of("Pump manual", "Pump manual > Care", text, TOKENIZER) == ""
    assert context_of("Other title", "Pump manual > Care", text, TOKENIZER) == "Other title"


def test_without_title_and_heading_there_is_none() -> None:
    assert context_of("", "", "Oil the bearings.", TOKENIZER) == ""


def test_it_is_cut_to_its_share_of_the_window() -> None:
    title = " ".join(f"word{i}" for i in range(100))
    context = context_of(title, "", "text", TOKENIZER)
    assert len(TOKENIZER.offsets(context)) == CONTEXT_TOKENS
    assert title.startswith(context)


def test_the_file_that_code_lies_in_is_matched_and_not_embedded() -> None:
    def chunk(heading: str) -> Chunk:
        context = context_of("", heading, "return 1", TOKENIZER, file="store/writer.py")
        return Chunk("c", "d", 0, "return 1", Span(0, 8, 1, 1), context)

    assert chunk("Writer.flush").searchable == "store/writer.py\nWriter.flush\nreturn 1"
    assert chunk("Writer.flush").embedded == "Writer.flush\nreturn 1"
    assert chunk("").searchable == "store/writer.py\n\nreturn 1"
    assert chunk("").embedded == "return 1"
