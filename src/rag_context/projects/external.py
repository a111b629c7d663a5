"""Documents of others that a project searches beside its own: a folder of the repository, read and never written."""

from rag_context.errors import FieldError
from rag_context.projects.config import ExternalDocs
from rag_context.projects.records import SchemaValidationError
from rag_context.projects.sync import Scope, is_document, patterns


def external_scope(external: ExternalDocs) -> Scope:
    """Which files of the folder are taken: the Markdown files that the patterns let through.

    Raises:
        SchemaValidationError: a pattern means nothing.
    """
    try:
        selected = patterns(external.include_patterns, external.exclude_patterns)
    except ValueError as error:
        message = f"external_docs: not all patterns can be used: {error}"
        detail = FieldError("external_docs", message)
        raise SchemaValidationError(f"The project configuration cannot be used: {message}", [detail]) from error
    return lambda path: is_document(path) and selected(path)
