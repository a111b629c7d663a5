"""A team's knowledge base: Markdown files of a repository, kept in the index as they are, and answers from them.

The files are the truth. Reading order: `config`, `opening`, `front_matter` and `documents` say what a file means;
`sync`, `watching` and `following` keep the index as the files are; `activation` says who works on which project;
`catalogue` says what there is; `retrieval` and `assembly` answer.
"""
