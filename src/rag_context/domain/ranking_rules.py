"""The rules that look at the question. Apart from their constants, so that settings can name them."""

from enum import StrEnum


class Rule(StrEnum):
    """A rule that may be left out of searches, to measure what it does (docs/design/quality.md)."""

    CODE = "code"
    """By what a passage of code defines, by its path and by its file; `search.code_rank`."""
    SPEAKER = "speaker"
    """By whom the question is about; `search.question_rules`."""
    IDENTIFIER = "identifier"
    """What holds a rare identifier of the question comes first; `search.code_rank`."""
    ANSWER = "answer"
    """By whether a message holds a time, a number or a place, as the question requires; `search.message_rules`."""
    QUESTIONS = "questions"
    """By how much of a message between people is questions; `search.message_rules`."""
    SESSION = "session"
    """By the whole conversation between people, and not its best messages; `search.message_rules`."""
    NO_ANSWER = "no-answer"
    """What is labelled `noAnswer`, and the default threshold, by the kind and number of passages; `search.ranking`."""
    SCRIPT = "script"
    """By the script of the question; `search.question_rules.weights_for`."""
    NEWER = "newer"
    """Later statements above earlier ones with another value; `search.newer`."""
    TIME = "time"
    """By nearness to a time that the question names; `search.question_times`."""
    STANDING = "standing"
    """Standing instructions in a list of their own; `search.question_rules.standing_request`."""
