"""Patterns of ignore files: as pathspec has them, and without going back and back."""

import threading

from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from rag_context.files.walk import MAX_PATTERN_CHARS, ignore_patterns

parts = st.text("ab*?", min_size=1, max_size=6) | st.just("**")
patterns = st.builds(
    lambda mark, lead, inner, tail: mark + lead + "/".join(inner) + tail,
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(parts, min_size=1, max_size=5),
    st.sampled_from(["", "/"]),
)
paths = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=6).map("/".join)


@settings(max_examples=600, deadline=None)
@given(lines=st.lists(patterns, min_size=1, max_size=3), path=paths)
def test_every_pattern_means_what_it_means_to_pathspec(lines: list[str], path: str) -> None:
    assert ignore_patterns(lines).check_file(path) == GitIgnoreSpec.from_lines(lines, backend="simple").check_file(path)


def test_stars_by_the_dozen_are_matched_at_once() -> None:
    """Without the atomic groups this takes longer than the universe has; it holds the interpreter's lock."""
    found: list[bool] = []
    name, folders = "a" * 250, "/".join(["a"] * 1000)
    work = threading.Thread(
        target=lambda: found.extend(
            [
                ignore_patterns(["*a" * 30 + "b"]).match_file(name),
                ignore_patterns(["**/a/" * 30 + "b"]).match_file(folders),
                ignore_patterns(["*a" * 30]).match_file(name),
                ignore_patterns(["**/a/" * 30 + "a"]).match_file(folders),
            ]
        ),
        daemon=True,
    )
    work.start()
    work.join()
    assert found == [False, False, True, True]


def test_a_pattern_that_is_too_long_is_passed_over_like_one_that_means_nothing() -> None:
    spec = ignore_patterns(["a" * (MAX_PATTERN_CHARS + 1), "!", "b"])
    assert not spec.match_file("a" * (MAX_PATTERN_CHARS + 1))
    assert spec.match_file("b")
