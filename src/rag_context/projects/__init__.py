"""Project documents: Markdown files of a repository, indexed as they are, and retrieval from them.

The files are the source of truth. Reading order: `config`, `opening`, `front_matter` and `documents` read files;
`sync`, `watching` and `following` keep the index equal to the files; `activation` and `callers` hold the projects and
who works on which; `listing` lists the documents; `finding`, `retrieval`, `run` and `assembly` answer queries.
"""
