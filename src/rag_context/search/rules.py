"""Constants of the rules that look at the question (`domain.rules.Rule`), in one place.

Each rule is a pure function in a module of its own, and holds on the open sets (docs/design/quality.md).
"""

MAX_SYMBOL_CHARS = 120
"""Longest question that may be one name."""

SYMBOL_VECTOR_WEIGHT = 0.3
"""Share of the vector in the fused score of code where the question is a name: its letters matter, not its meaning."""

SYMBOL_POOL = 100
MOST_DEFINITIONS = 40
"""Candidates of each retriever where the question is or has a name, and how many are ranked because they define it:
many files use it, one defines it."""

DEFINITION_WEIGHT = 1.0
OWN_DEFINITION_WEIGHT = 1.5
"""What a passage gains that defines the name, more where file, folder or class are those of the name; in best fused
scores."""

NAMED_SHARE = 0.5
NAMED_PART_SHARE = 0.3
MOST_SYMBOLS = 4
"""Shares of that where the question has a name among other words: for its definition, and for other parts of what it
stands for; and how many names count."""

PATH_WEIGHT = 0.5
"""What a passage gains whose file and folder hold all words of the question; in best fused scores."""

MIN_PATH_WORD_CHARS = 3

MINOR_FILE_FACTOR = 0.5
"""For tests, examples, older versions and the like; again for files that only gather what others define."""

COHERENCE_WEIGHT = 0.2
"""What the best passage of the file with the best passages in sum gains; in best fused scores."""

REPEAT_FACTOR = 0.7
"""For each passage of a file, once for every better one of the same file."""

KNOWN_CODE = 20_000
"""Passages of code whose definitions and paths are kept in memory, each of some hundred bytes."""

USER_FACTOR = 1.5
NAMED_FACTOR = 1.25
"""How much more a passage counts that the speaker alone said whom the question is about."""

SPEAKER_POOL = 200
"""Candidates of each retriever where a question may be about a speaker: what others said stands above much of it."""

SESSION_WEIGHT = 0.2
SESSION_MESSAGES = 3
"""What a message gains by its conversation, and of how many of the best messages of one that is the mean."""

ANSWER_WEIGHT = 0.15
"""What a message gains that holds what the question is for, as a share of the best score."""

QUESTION_WEIGHT = 0.2
"""What a message between people loses that is nothing but questions, as a share of its score."""

KNOWN_MESSAGES = 50_000
"""Passages of conversations of which it is kept in memory what they hold, each of some hundred bytes."""

MIN_IDENTIFIER_CHARS = 3
MOST_IDENTIFIERS = 4
FEW_HOLDERS = 3
"""Shortest identifier of a question, how many of them count, and how many documents hold one that is rare."""

FEW_PASSAGES = 40
"""Of fewer, the best stands less high by chance."""

LIKELY_LOG_ODDS = 0.5
LIKELY_MESSAGE_LOG_ODDS = 0.6
LIKELY_PEOPLE_LOG_ODDS = 1.0
LIKELY_CODE_LOG_ODDS = -1.8
LIKELY_FEW_LOG_ODDS = -2.1
LIKELY_DATED_LOG_ODDS = -1.3
"""How far above the model's answerable cosine, in log-odds, the best passage of an answer is: of prose, of messages, of
those between people, of code, among few passages, and where the question names a time, which tells little of its
subject (between people no such exception is needed). On long messages with an assistant 1.0 would label more of the
right questions, on short ones it labels 9 % of the answerable ones."""

SHARE_LOG_ODDS = 2.4
"""What a passage gains there that holds all of the question's idf mass."""

LIKELY_SHARE = 0.6
"""A passage that holds this share of the question's idf mass probably answers it, whatever its cosine."""

LOW_THRESHOLD = 1.0 / 3.0
"""Share of the model's threshold that holds for code and among few passages: answers have lower cosines there."""

SPACELESS_VECTOR_WEIGHT = 0.3
"""Share of the vector in the fused scores where the question is in a script without spaces, as Chinese: the bundled
model knows English best, and pairs of such characters say more than words."""

NEWER_AMONG = 20
NEWER_KEPT = 3
"""Of so many best passages one may be outdated, and so many others may be newer."""

NEWER_COSINE = 0.4
NEWER_SHARE = 0.2
NEWER_SCORE = 0.6
"""How near a newer passage is to the older one, in what share of the question's terms both agree, and the newer one's
least share of the older one's fused score."""

NEWER_STATEMENT_COSINE = 0.6
NEWER_STATEMENT_SHARE = 0.5
"""Of decisions and documents, which hold more subjects than a message: their cosine, and the share of the question's
terms above which the values of a sentence count. Not measured on real ones."""

ALIKE_SHARE = 0.8
ALIKE_TERMS = 4
"""Which share of their terms, and of no fewer than so many, two sentences with different values have in common."""

CHANGE_FACTOR = 1.2
"""How much more a newer passage counts that speaks of a change."""

TIME_WEIGHT = 0.5
"""What a passage within the time that a question names gains, as a share of the best score."""

OUTSIDE = 0.8
"""What a passage right outside of the time gains, as a share of that."""

HALF_LIFE_DAYS = 7.0
"""A passage so many days outside of the time gains half as much as one right outside."""

NEAR = 0.5 * OUTSIDE
"""Passages of this nearness or more become candidates by themselves."""

JOINING = 20
"""How many of them: the best of each retriever, and of both."""

NEAR_POOL = 120
"""Hits of each retriever that may hold them already: another search takes longer than making more hits."""

THRESHOLD_SHARE = 0.3
"""How much of the default threshold applies within the time: "what did we do on 7 May" says little else."""

YEARS_BACK = 4
"""Of a time without a year, candidates are found in the last such period and in so many years before it."""

JOINED_CHARS = 1_600
"""Longest passage that is joined of pieces, about three of them."""

REPEATED_SHARE = 0.9
REPEATED_OWN = 0.05
REPEATED_LENGTHS = 0.7
REPEATED_CHARS = 200
"""Share of their words, repeats counted, that near-duplicates have in common, the share from which own words make
another passage, the least ratio of their lengths, and the least length: a sentence may stand in two documents."""

OTHER_SPEAKER_MARGIN = 0.1
OTHER_SPEAKER_SHARE = 0.5
"""How much nearer to a question about a person must be what another one said, in cosines, and how much of that it is
worth to hold all of the question's terms."""

STANDING_KEPT = 3
STANDING_SCORE = 0.075
"""How many standing instructions an answer lists, and their least calibrated relevance: with the bundled model a cosine
of 0.12. An instruction says little of what it applies to, and who says it stands in the text that is embedded."""
