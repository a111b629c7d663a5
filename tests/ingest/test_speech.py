"""Who said each chunk, and where conversations of two roles are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import CHAT, DECISION, Chunk, Metadata
from rag_context.ingest.chunk_context import chunks_of
from rag_context.ingest.chunking.prose import Speech, conversation
from rag_context.testing import WordTokenizer
from tests.stores.builders import document


def cut(
    content: str, *, content_type: str = CHAT, extra: dict[str, str] | None = None, window: int = 254
) -> list[Chunk]:
    written = document("talk", content, content_type=content_type, metadata=Metadata(extra=dict(extra or {})))
    return chunks_of(written, WordTokenizer(), window)


def said(content: str, **more: str) -> list[tuple[str | None, str]]:
    return [(chunk.speaker, chunk.text.strip()) for chunk in cut(content, extra=more)]


def test_a_conversation_of_two_roles_is_cut_at_every_change() -> None:
    assert said("[user] My cat is Miso.\n[user] She is six.\n[assistant] Noted.\n[user] Thanks.\n") == [
        ("User", "[user] My cat is Miso.\n[user] She is six."),
        ("Assistant", "[assistant] Noted."),
        ("User", "[user] Thanks."),
    ]


@pytest.mark.parametrize(
    "talk",
    [
        "User: Hello.\nAssistant: Good day.\n",
        "**Human:** Hello.\n**AI:** Good day.\n",
        "## User\nHello.\n## Assistant\nGood day.\n",
        "[2025-03-01 10:00] [User] Hello.\n[Claude] Good day.\n",
        "---\ntitle: Greetings\n---\n[User] Hello.\n[Assistant] Good day.\n",
        "User: Hello.\nAssistant: Good day.\nNote: it may rain.\n",
    ],
)
def test_roles_are_known_in_every_form(talk: str) -> None:
    first, second = cut(talk)
    assert (first.speaker, second.speaker) == ("User", "Claude" if "Claude" in talk else "Assistant")
    assert ("Hello." in first.text, "Good day." in second.text) == (True, True)


def test_between_people_every_message_is_a_chunk_and_only_short_ones_of_one_share_it() -> None:
    long = f"[Mara] I sold the boat, {'and much more ' * 8}in the end."
    talk = f"[Mara] I sold the boat.\n[Jonas (he)] Really?\n[Jonas] Well.\n[Jonas] So.\n{long}\n{long}\n"
    assert said(talk) == [
        ("Mara", "[Mara] I sold the boat."),
        ("Jonas", "[Jonas (he)] Really?\n[Jonas] Well.\n[Jonas] So."),
        ("Mara", long),
        ("Mara", long),
    ]


def test_a_chunk_of_one_person_has_that_speaker() -> None:
    (alone,) = cut("[Mara] I sold the boat.\n[Mara] Finally.\n")
    assert alone.speaker == "Mara"
    assert [chunk.speaker for chunk in cut("@jonas (he): Really?")] == ["jonas"]


def test_every_part_of_a_long_message_has_its_speaker() -> None:
    answer = " ".join(f"This is sentence {number}." for number in range(200))
    chunks = cut(f"[user] Tell me.\n[assistant] {answer}\n", window=64)
    assert len(chunks) > 3
    assert [chunk.speaker for chunk in chunks] == ["User", *["Assistant"] * (len(chunks) - 1)]


def test_a_message_by_itself_may_name_its_speaker_in_its_metadata() -> None:
    assert said("I moved to Porto.", role="human") == [("User", "I moved to Porto.")]
    assert said("Note: I moved.", speaker="Mara", role="user") == [("Mara", "Note: I moved.")]
    assert said("I moved to Porto.", speaker=" ") == [(None, "I moved to Porto.")]


def test_text_that_is_no_conversation_has_no_speaker() -> None:
    (chunk,) = cut("Status: accepted. User: nobody.", content_type=DECISION, extra={"speaker": "Mara"})
    assert chunk.speaker is None


@given(st.lists(st.sampled_from(["[user] a", "[Tool] b", "[assistant] c", "[Mara] d", "e", "", "---"]), max_size=12))
def test_stretches_cover_a_text_without_gaps(lines: list[str]) -> None:
    text = "\n".join(lines)
    stretches = Speech(text, conversation(text)).stretches()
    assert "".join(text[start:end] for start, end in stretches) == text
