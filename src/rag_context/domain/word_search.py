"""Which of many words stand in a text, by one pass over it: so that patterns run only where they can match."""

from collections.abc import Iterable

from ahocorasick_rs import AhoCorasick, Implementation


class WordSearch:
    """An Aho-Corasick automaton of words, which are found anywhere, also inside of others, in the case they have."""

    def __init__(self, words: Iterable[str]) -> None:
        self._automaton = AhoCorasick(words, implementation=Implementation.DFA)

    def present(self, text: str) -> set[str]:
        """The words that `text` holds. Other threads run meanwhile."""
        try:
            return set(self._automaton.find_matches_as_strings(text, overlapping=True))
        except UnicodeEncodeError:  # half of a surrogate pair, which no word has
            return self.present(text.encode(errors="replace").decode())
