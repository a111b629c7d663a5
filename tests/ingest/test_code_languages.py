"""Files as people write them, in every language that has a grammar: whole methods, each under its name (C-1)."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import CODE, Span
from rag_context.ingest.chunking.chunker import split
from tests.ingest.tokens import texts, word_pieces

METHODS = ("openAccount", "postEntry", "closeBooks")


@dataclass(frozen=True)
class Language:
    """A file of one class (or what stands for it) with a method of a dozen lines for each of `METHODS`."""

    source: str
    head: str
    method: str
    line: str
    tail: str
    path: str = "Ledger.{}"

    def file(self) -> str:
        parts = [self.head]
        for name in METHODS:
            lines = "".join(self.line.format(name=name, number=number) for number in range(12))
            parts.append(self.method.replace("NAME", name).replace("BODY", lines))
        return "\n".join([*parts, self.tail])


LANGUAGES = [
    Language(
        "ledger.py",
        '"""Books of account."""\n\nimport logging\nfrom decimal import Decimal\n\n\nclass Ledger(Base):\n'
        '    """Keeps entries."""\n',
        '    @traced("NAME")\n    async def NAME(self, account: str, *, amount: Decimal) -> None:\n'
        '        """Do it."""\nBODY\n',
        '        logger.info("{name} step {number} of %s", account)\n',
        'if __name__ == "__main__":\n    main()\n',
    ),
    Language(
        "src/ledger.ts",
        'import { Account } from "./account";\n\n/** Keeps entries. */\n'
        'export class Ledger<T extends Account> implements Book {\n',
        "  /** Does it. */\n  @Traced()\n  async NAME(account: T, amount: number): Promise<void> {\nBODY  }\n",
        "    this.log.info(`{name} step {number} of ${{account.id}}`);\n",
        "}\n\nexport default Ledger;\n",
    ),
    Language(
        "ledger.tsx",
        'import React from "react";\n\nexport class Ledger extends React.Component<Props> {\n',
        "  NAME = (account: Account) => {\nBODY    return <Row key={account.id}>{account.name}</Row>;\n  };\n",
        "    this.log.info(`{name} step {number} of ${{account.id}}`);\n",
        "}\n",
    ),
    Language(
        "ledger.js",
        '"use strict";\nconst { Account } = require("./account");\n\nclass Ledger {\n  #entries = [];\n',
        "  // Does it.\n  async NAME(account, amount) {\nBODY  }\n",
        "    this.log.info(`{name} step {number} of ${{account.id}}`);\n",
        "}\n\nmodule.exports = { Ledger };\n",
    ),
    Language(
        "Ledger.cs",
        "using System;\n\nnamespace Books\n{\n    /// <summary>Keeps entries.</summary>\n"
        "    public sealed class Ledger : IBook\n    {\n",
        "        /// <summary>Does it.</summary>\n        [Traced]\n"
        "        public async Task NAME(Account account)\n        {\nBODY        }\n",
        '        Log.Info("{name} step {number} of " + account.Id);\n',
        "    }\n}\n",
    ),
    Language(
        "Ledger.java",
        "package books;\n\nimport java.util.List;\n\n/** Keeps entries. */\n"
        "public class Ledger<T extends Account> implements Book {\n",
        "    /** Does it. */\n    @Override\n"
        "    public void NAME(T account, long amount) throws BookException {\nBODY    }\n",
        '        log.info("{name} step {number} of " + account.id());\n',
        "}\n",
    ),
    Language(
        "ledger.go",
        'package books\n\nimport "log"\n\n// Ledger keeps entries.\ntype Ledger struct {\n\tentries []Entry\n}\n',
        "// NAME does it.\nfunc (l *Ledger) NAME(account string, amount int64) error {\nBODY\treturn nil\n}\n",
        '\tlog.Printf("{name} step {number} of %s", account)\n',
        "var _ Book = (*Ledger)(nil)\n",
    ),
    Language(
        "ledger.rs",
        "use std::fmt;\n\n/// Keeps entries.\n#[derive(Debug, Default)]\npub struct Ledger<T> {\n"
        "    entries: Vec<T>,\n}\n\nimpl<T: Account> Ledger<T> {\n",
        "    /// Does it.\n    pub async fn NAME(&mut self, account: &T) -> Result<(), Error> {\n"
        "BODY        Ok(())\n    }\n",
        '        info!("{name} step {number} of {{}}", account.id());\n',
        "}\n",
    ),
    Language(
        "ledger.c",
        '#include "ledger.h"\n#include <stdio.h>\n\nstruct ledger {\n    struct entry *entries;\n};\n',
        "/* Does it. */\nstatic int NAME(struct ledger *ledger, const char *account)\n{\nBODY    return 0;\n}\n",
        '    fprintf(stderr, "{name} step {number} of %s\\n", account);\n',
        "#ifdef TEST\nint main(void) { return 0; }\n#endif\n",
        path="{}",
    ),
    Language(
        "ledger.cpp",
        '#include "ledger.hpp"\n\nnamespace books {\n\ntemplate <typename T>\nLedger<T>::Ledger() = default;\n',
        "/// Does it.\ntemplate <typename T>\nvoid Ledger<T>::NAME(const T &account, long amount) noexcept {\n"
        "BODY}\n",
        '    log << "{name} step {number} of " << account.id() << std::endl;\n',
        "}  // namespace books\n",
        path="books.Ledger.{}",
    ),
    Language(
        "ledger.hpp",
        "#pragma once\n\n/// Keeps entries.\nclass Ledger final : public Book {\n public:\n",
        "  /// Does it.\n  virtual void NAME(const Account &account) override {\nBODY  }\n",
        '    log << "{name} step {number} of " << account.id() << std::endl;\n',
        " private:\n  std::vector<Entry> entries_;\n};\n",
    ),
]  # fmt: skip

ALL = pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.source)


def chunks(content: str, source: str) -> list[Span]:
    return split(content, content_type=CODE, source=source, tokenizer=word_pieces(), window=222)


def given_back(content: str, spans: list[Span]) -> str:
    """The chunks one after the other, what two of them share taken once."""
    text, covered = "", 0
    for span in spans:
        assert span.start <= covered <= span.end
        text += content[covered : span.end]
        covered = span.end
    return text


@ALL
def test_each_method_is_found_under_its_class(language: Language) -> None:
    content = language.file()
    spans = chunks(content, language.source)
    assert given_back(content, spans) == content
    for name in METHODS:
        held = [span for span, text in zip(spans, texts(content, spans), strict=True) if f"{name} step 6 of" in text]
        assert {span.heading for span in held} == {language.path.format(name)}


@ALL
def test_no_chunk_holds_parts_of_two_methods(language: Language) -> None:
    content = language.file()
    for text in texts(content, chunks(content, language.source)):
        assert sum(f"{name} step" in text for name in METHODS) <= 1


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(LANGUAGES), st.lists(st.integers(0, 10_000), min_size=1, max_size=6))
def test_broken_code_gives_back_its_text_too(language: Language, cuts: list[int]) -> None:
    content = language.file()
    for cut in cuts:
        place = cut % len(content)
        content = content[:place] + content[place + 1 + cut % 40 :]
    spans = chunks(content, language.source)
    assert given_back(content, spans) == content
