"""Which of many words stand in a text, by one pass over it: so that patterns run only where they can match."""

from collections.abc import Collection, Iterable, Sequence

from ahocorasick_rs import AhoCorasick, Implementation


class WordSearch:
    """An Aho-Corasick automaton of words, which are found anywhere, also inside of others, in the case they have.

    `of_rules` are the words of each of several rules, `further` those that lead to none.
    """

    def __init__(self, of_rules: Sequence[Collection[str]], further: Iterable[str] = ()) -> None:
        self._rules: dict[str, list[int]] = {}
        for at, words in enumerate(of_rules):
            for word in words:
                self._rules.setdefault(word, []).append(at)
        self._automaton = AhoCorasick({*self._rules, *further}, implementation=Implementation.DFA)

    def present(self, text: str) -> set[str]:
        """The words that `text` holds. Other threads run meanwhile."""
        try:
            return set(self._automaton.find_matches_as_strings(text, overlapping=True))
        except UnicodeEncodeError:  # half of a surrogate pair, which no word has
            return self.present(text.encode(errors="replace").decode())

    def rules(self, present: Iterable[str]) -> list[int]:
        """The numbers, ascending, of the rules that words lead to: of most rules, none is in most texts."""
        return sorted({at for word in present for at in self._rules.get(word, ())})
