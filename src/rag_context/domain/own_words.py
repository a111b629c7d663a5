"""Which words in a user's messages are the user's own, and which of them are standing instructions.

People quote, paste and forward: pages, mails, tickets, code, what others wrote. What stands in quotation marks, fences,
tags or behind a mark of a paste is another person's, and never an instruction of the user, however it is worded. In
doubt it is not the user's either: a user repeats an instruction that is missed, and agents obey one that a
stranger placed. What is another's is replaced by as many `OTHERS` characters, so that offsets stay.

Every pattern is linear on any text: its repeats are possessive or bounded, or start where no other of its kind can.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from rag_context.domain.word_search import folded

Range: TypeAlias = tuple[int, int]

OTHERS = "\ufffc"
"""Stands for a character that is not the user's own."""

MOST_TYPED = 6_000
"""Characters of a message above which only its first paragraph counts, among as many: people do not type so much."""

PIECE_CHARS = 1 << 16
MOST_INSTRUCTION = 1_000
"""Characters that may belong to an instruction, the question mark included that would make a question of it."""

SHORT_QUOTATION = 80
"""Characters of a quotation up to which a passage with it still counts as the user's own words."""

QUOTED_WORD = 24
"""Characters of a quotation that says nothing by itself, as in `never write "simply"`."""

_NO_VERB = (
    # What begins a statement and no order: who acts, articles, prepositions, forms of the past, set phrases.
    r"(?:i|i['’]\w+|you|you['’]\w+|he|she|it|it['’]s|we|we['’]\w+|they|there|this|that|these|those|the|an?|my|your|his|her|"
    r"its|our|their|some|any|all|most|many|one|two|who|what|when|where|how|why|if|in|at|on|of|for|from|with|by|to|as|and|"
    r"or|but|so|because|again|before|after|since|until|ever|been|had|has|was|were|am|is|are|will|would|could|can|"
    r"mind|heard|seen|saw|knew|known|thought|said|wanted|felt|went|got|came|took|ate|found|made|gave|met|read|told|kept|"
    r"left|lost|slept|ran|sat|stood|spent|bought|brought|began|grew|fell|drove|wrote|spoke|understood|did|does|"
    r"happy|fun|nice|great|good|bad|easy|hard|interesting|better|worse|too|very|really|quite|much|more|less|late|early|"
    r"there|here|happens?|\w{2,}ed|\w{2,}ing|\w+['’]s|\w+ (?:will|would|is|are|was|were|can|could|may|might|has|have))"
    r"\b"
)
_ORDER = (
    rf"(?:please |always |never |then |first |just |only |also |do not |don['’]t |never ever )*+(?!{_NO_VERB})[a-z]"
)
"""An order, up to its verb. Of a verb it is known only what it is not."""

_TALK = (
    r"(?:answers?|replies|reply|responses?|messages?|explanations?|summar(?:y|ies)|e-?mails?|mails|letters?|texts?|"
    r"examples?|sentences|paragraphs|lists?|tables?|code|output|comments?|suggestions?|recommendations?|drafts?|plans?)"
)
_VERB = (
    r"(?:answer|reply|respond|use|write|give|keep|include|avoid|address|add|show|cite|list|explain|format|convert|translate|"
    r"assume|ask|make|be|provide|summari[sz]e|round|name|refer|skip|leave|stick|limit|treat|speak|talk|mention|start|begin|"
    r"end|put|quote|spell|prefix|follow|stop|sign|suggest|recommend|tell|apologi[sz]e|repeat|commit|push|mock|touch|"
    r"change|delete|propose|offer|send|number|sort|run|test|omit|drop|say|describe|recap)"
)
_SCOPE = (
    r"(?:from now on|from here on|going forward|in (?:the )?future|at all times|by default|as a rule|"
    r"every (?:single )?time|whenever (?:i|you|we)|when(?:ever)? you (?:write|answer|reply|give|explain|draft|suggest)"
    rf"|in (?:all|every|each of|any of)?(?: of)? ?your {_TALK}|in (?:all|every) {_TALK}"
    r"|for all (?:my |your |of )?\w+|to me always)"
)
_NOT_ONCE = (
    r"(?![^.!?\n]{0,120}\b(?:today|tonight|tomorrow|later|yet|this (?:evening|week|morning|afternoon)|next week"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b)"
)
_INSTRUCTION = re.compile(
    # The beginning of a line, of a sentence, or of a message behind its speaker; then the mark of a list.
    r"(?:^[^\S\n]*+|[.!?:;>*\]][\"”)]?\s++)(?:[-*+•]\s++|\d{1,3}[.)]\s++)?+"
    r"(?:(?:please|and|also|but|so|ok|okay|oh|well),?\s++){0,2}+(?:"
    rf"(?:you (?:should|must|can) )?(?:always|never)[ ,]{{1,2}}(?:ever )?{_ORDER}"
    rf"|(?:from now on|from here on|going forward|in (?:the )?future|by default|as a rule)(?::|,? (?:{_ORDER}|no (?=\w)"
    r"|you (?:should|must) ))"
    r"|(?:whenever|every ?time|each time|(?:when|if) I (?:ask|say|send|write|mention|give|paste|want))\b"
    rf"[^.!?\n,]{{1,160}}, {_ORDER}"
    rf"|remember to {_NOT_ONCE}[a-z]"
    rf"|(?:do not|don['’]t)(?: ever)? (?!make me|tell (?!me\b)){_VERB}\b{_NOT_ONCE}"
    rf"|{_VERB}\b[^.!?\n]{{0,160}}?\b{_SCOPE}\b"
    rf"|(?:in (?:all|every|each of|any of)?(?: of)? ?your {_TALK}|(?:in|for) all (?:my |your )?\w+), {_ORDER}"
    rf"|keep (?:all )?(?:of )?your {_TALK}\b"
    rf"|I(?:['’]d| would)? (?:always )?prefer (?:[\w'’-]+,? (?:and |or )?){{0,4}}?{_TALK}\b"
    r"|call me (?-i:[A-Z])\w"
    r")"
    r"(?![^.!?\n]{0,300}\?)",  # a question is no instruction
    re.IGNORECASE | re.MULTILINE,
)

_USER = r"(?:user|human|prompter)"
_TURN = re.compile(
    r"^[ \t]{0,3}(?:[\[(]?\d[^\[\]()\n]{0,30}[\])]?[ \t]{1,4})?(?:"
    rf"(?P<bracketed>\[{_USER}\]:?)|(?P<angled><{_USER}>)"
    rf"|(?P<strong>(?:\*\*|__){_USER}(?::(?:\*\*|__)|(?:\*\*|__):))|(?P<headed>#{{1,6}} {_USER}:?[ \t]*$)"
    rf"|(?P<plain>@?{_USER}(?: \([^()\n]{{1,24}}\))?:))(?=\s)",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a message of the user, in the forms of `ingest.chunking.prose`."""

_PARAGRAPH_END = re.compile(r"\n[ \t]*+\n")

_ENCLOSED = re.compile(
    # Code fences and long strings, which go on to the end where they are not closed.
    r"(?m:^)[ \t]*+(?P<fence>`{3,}+|~{3,}+|\"{3}|'{3})(?s:.*?)(?:\n[ \t]*+(?P=fence)[`~]*+|(?P=fence)|\Z)"
    # Lines that are quoted, with what goes on below them; and lines that are indented as code.
    r"|(?m:^)[ \t]{0,3}>[^\n]*+(?:\n(?![ \t]*+(?:\n|\Z))[^\n]++)*+"
    r"|(?m:^)(?:[ ]{4}|\t)[^\n]*+"
    # Quotation marks, and what they open and nothing closes up to the end of the paragraph.
    r"|`[^`\n]++`"
    r"|[“„](?:[^“”\n]|\n(?![ \t]*+\n))*+[“”]?"
    r"|«(?:[^»\n]|\n(?![ \t]*+\n))*+»?"
    r"|(?<![^\s(\[{:,;—–-])\"(?=\S)(?:[^\"\n]|\n(?![ \t]*+\n))*+\"?"
    r"|(?<!\S)'(?=\S)(?:[^'\n]|'(?=\w))++'"
    r"|‘(?:[^’\n]|’(?=\w))++’"
)
_OPENED = re.compile(r"<(?P<name>[A-Za-z][\w:.-]{0,60})(?:\s[^<>]{0,1000})?>")
_CLOSED = re.compile(r"</(?P<name>[A-Za-z][\w:.-]{0,60})\s*+>")

_OWN_LABELS = (
    r"(?:note|notes|reminder|rules?|ps|p\.s|nb|tip|important|style|format|formatting|tone|language|preferences?|"
    r"requests?|also|one (?:more )?thing|one more|conventions?|general|please|remember|instructions?|generally|btw)"
)
_PASTE = re.compile(
    r"^[ \t]*+(?:\#{1,6}[ \t]|\||-{3,}|={3,}|\*{3,}|_{3,}|</?[A-Za-z!?]|/[/*]|\#!|--[ ]|[$%][ ]"
    r"|(?:import|from|def|class|function|const|let|var|return)\s[\w{*].{0,200}?[:;{(]\s*+$"
    # Headers of mails, tickets and pages.
    r"|(?:from|to|cc|bcc|sent|subject|reply-to|fwd?|re|aw|wg|von|an|betreff|gesendet|author|by|posted|published|updated|"
    r"last updated|reporter|assignee|priority|status|ticket|issue|date|title|description|labels|comments?|todo|fixme)"
    r"\b[ ]?[^\s:]{0,20}:"
    r"|(?:posted|published|written|updated|last updated|sent|edited) (?:by|on|at|from)\b"
    r"|https?://\S++[ \t>)]*+$"
    # What a person says: a time or a name before it.
    r"|(?:[\[(]?\d{1,4}[-:./]\d[^\[\]()\n]{0,24}[\])]?[ \t,-]{1,4})?(?:\[[^\]\n]{1,63}\]|<[^<>\n]{1,63}>)[ \t:]"
    r"|[\[(]?\d{1,4}[-:./]\d[^\[\]()\n]{0,24}[\])]?[ \t,-]{1,4}\w"
    rf"|(?!{_OWN_LABELS}\b)@?(?-i:[A-Z])[\w.'@-]{{0,38}}(?: (?-i:[A-Z])[\w.'@-]{{0,38}}){{0,2}}"
    r"(?: \([^()\n]{1,24}\))?:\s"
    # A line in the manner of titles above others; navigation.
    r"|(?!(?:hi|hello|hey|dear|thanks|thank|good)\b)(?-i:[A-Z0-9])[\w'’&-]*+"
    r"(?: (?:(?-i:[A-Z0-9])[\w'’&-]*+|of|the|and|for|to|in|on|a|an|&|-|–|—)){1,11}[ \t]*+\n\s*+(?=\S)"
    r"|[^\n|·›»]{1,40}[|·›»][^\n|·›»]{1,40}[|·›»])"
    r"|^(?:on|am) [^\n]{4,120}? (?:wrote|schrieb)\b",
    re.IGNORECASE | re.MULTILINE,
)
"""Lines with which something begins that was pasted; it goes on to the end of the message."""

_PASTE_PHRASE = re.compile(
    r"original message|forwarded message|begin forwarded|all rights reserved|skip to (?:main )?content|"
    r"table of contents|min(?:ute)?s? read|read more|cookie policy|©|\(c\) ?\d{4}"
)
"""What also begins it, with some words before. Of every place these words would be tried first: ten times slower."""
_WORDS_BEFORE = re.compile(r"[-\w ]{0,20}\Z")

_SENTENCE = re.compile(r"[^.!?\n]++(?:[.!?](?!\s|$)[^.!?\n]*+)*+[.!?]*+", re.MULTILINE)
_TEXTS = (
    r"(?:page|site|website|article|post|blog|docs?|documentation|readme|guide|manual|handbook|runbook|playbook|wiki|e-?mails?|mails?|messages?|"
    r"letter|tickets?|issues?|bug report|report|threads?|chat|channel|transcript|comments?|logs?|output|errors?|trace|"
    r"text|snippet|paragraphs?|passage|draft|documents?|files?|contract|policy|notice|announcement|memo|newsletter|"
    r"release notes|changelog|code|functions?|scripts?|config|quotes?|tweet|answers?|response|reply|notes)"
)
_HANDLING = (
    r"(?:summari[sz]e|translate|proofread|review|check|explain|fix|rewrite|reword|edit|shorten|analy[sz]e|read|look at|"
    r"see|found|got|received|sent|what do you (?:think|make)|help me (?:with|understand)|answer|reply to|respond to|"
    r"this is|here(?:['’]s| is| are| comes))"
)
_HANDLED = re.compile(
    rf"\b{_HANDLING}\b[^\n]{{0,80}}?\b(?:this|these|following|below|attached|{_TEXTS})\b|\b(?:below|following|attached)\b"
)
"""A sentence that says what is to be done with a text, which stands on the next lines."""

_BEFORE_COLON = re.compile(
    rf"\b(?:{_HANDLING}|(?:the|an?|our|their|his|her|its|this|that) (?:[\w'’-]+ ){{0,2}}?{_TEXTS})\b"
)

_REPORTED = re.compile(
    rf"\b(?<!\bi )(?<!\bi've )(?:says?|said|wrote|writes|states?|stated|reads|told|tells|mentions?|recommends?|"
    rf"suggests?|insists?|demands?|asks)\b"
    rf"|\b(?:according to|copied|copy of|pasted?|pasting|forward(?:ed|ing)?|quot(?:es?|ed|ing)|"
    rf"from (?:the|a|an|our|their|my|this|that) (?:\w+ ){{0,3}}?{_TEXTS})\b"
)
"""A sentence that reports what another says, which goes on to the end of the paragraph, or behind a colon."""

_COLON = re.compile(r":(?=\s|$)")
_OWN = re.compile(r"\bmy (?:\w+ )?(?:rules?|preferences?|instructions?|wish(?:es)?|style|conventions?)\b")


def instructions(text: str) -> list[int]:
    """Where standing instructions stand in `text`, each by its last character, of any speaker; ascending."""
    return [
        match.end() - 1
        for begin in range(0, len(text), PIECE_CHARS)  # while one piece is searched, no other thread runs
        for match in _INSTRUCTION.finditer(text, begin, begin + PIECE_CHARS + MOST_INSTRUCTION)
        if match.start() < begin + PIECE_CHARS
    ]


def own_words(said: str) -> str:
    """What a user said in one or several messages, with `OTHERS` in place of all that is not their own."""
    kept: list[str] = []
    for start, end in _messages(said):
        kept.append(_own(said[start:end]))
    return "".join(kept)


def shown(passage: str) -> str:
    """A passage of a user with only their own words: what is another's is left out, but for single quoted words."""

    def kept(others: re.Match[str]) -> str:
        return passage[others.start() : others.end()] if len(others[0]) <= QUOTED_WORD else "…"

    words = own_words(passage)
    return passage if OTHERS not in words else re.sub(f"{OTHERS}++", kept, words).strip()


def quotes(words: str) -> bool:
    """Whether `own_words` left more than short quotations out of a text."""
    return OTHERS * (SHORT_QUOTATION + 1) in words


def _messages(said: str) -> Iterator[Range]:
    """The messages, without gaps: all turns have the form of the first."""
    turns = list(_TURN.finditer(said))
    form = turns[0].lastgroup if turns and not said[: turns[0].start()].strip() else None
    starts = [turn.start() for turn in turns if turn.lastgroup == form] if form is not None else []
    bounds = [0, *starts[1:], len(said)]
    return pairwise(bounds)


def _own(message: str) -> str:
    turn = _TURN.match(message, len(message) - len(message.lstrip("\r\n")))
    start = turn.end() if turn is not None else 0
    typed, rest = message[start : start + MOST_TYPED], message[start + MOST_TYPED :]
    words = _ENCLOSED.sub(lambda match: OTHERS * len(match[0]), typed) + rest
    words = _blanked(words, _tagged(words))[: len(typed)]  # what closes a tag may stand far behind
    words = _blanked(words, _announced(words))
    end = _paste_start(words)
    if len(message) > MOST_TYPED:
        paragraph = _PARAGRAPH_END.search(words, len(words) - len(words.lstrip()))
        end = min(end, paragraph.start() if paragraph is not None else 0)
    return message[:start] + words[:end] + OTHERS * (len(typed) - end + len(rest))


def _paste_start(words: str) -> int:
    """Where something pasted begins in `words`, or their end."""
    starts = [len(words)]
    if (line := _PASTE.search(words)) is not None:
        starts.append(line.start())
    if (phrase := _PASTE_PHRASE.search(folded(words))) is not None:
        before = _WORDS_BEFORE.search(words, max(phrase.start() - 20, 0), phrase.start())
        starts.append(phrase.start() if before is None else before.start())
    return min(starts)


def _blanked(text: str, ranges: Iterable[Range]) -> str:
    """`text` with these ranges, which ascend, in other hands."""
    kept, at = [], 0
    for start, end in ranges:
        kept += [text[at:start], OTHERS * (end - max(start, at))]
        at = max(end, at)
    return "".join([*kept, text[at:]])


def _tagged(text: str) -> Iterator[Range]:
    """From each tag to where its name is closed for the last time."""
    last = {match["name"]: match.end() for match in _CLOSED.finditer(text)}
    for match in _OPENED.finditer(text):
        end = last.get(match["name"], 0)
        if end > match.start():
            yield match.start(), end


def _announced(text: str) -> Iterator[Range]:
    """What stands behind sentences that announce another's words."""
    for match in _SENTENCE.finditer(text):
        end = match.end()
        sentence = folded(match[0])
        if _OWN.search(sentence) or _INSTRUCTION.match(match[0].lstrip()):
            continue
        colon = _COLON.search(sentence)
        lead = sentence if colon is None else sentence[: colon.start()]
        is_reported = _REPORTED.search(lead) is not None
        if not is_reported and (_HANDLED if colon is None else _BEFORE_COLON).search(lead) is None:
            continue
        line = text.find("\n", end)
        line = line if line >= 0 else len(text)
        if colon is not None:
            yield match.start() + colon.end(), len(text)
        elif not text[end:line].strip():  # it ends its line: what follows is what it announces
            yield line, len(text)
        elif is_reported:
            paragraph = _PARAGRAPH_END.search(text, end)
            yield end, paragraph.start() if paragraph is not None else len(text)
