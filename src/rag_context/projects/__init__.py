"""Project documents: Markdown files of a repository, indexed as they are, and retrieval from them.

The files are the source of truth. Reading order: `config`, `project_opening`, `front_matter`, `doc_types` and
`project_documents` read files; `sync` and `project_following` keep the index equal to the files; `activation` and
`callers` hold the projects and who works on which; `document_lists` lists the documents; `finding`, `retrieval`,
`excerpts` and `assembly` answer queries.
"""
