"""External documents of a project: a folder of the repository that is indexed separately and never written."""

from rag_context.errors import FieldError
from rag_context.projects.config import ExternalDocs
from rag_context.projects.records import SchemaValidationError
from rag_context.projects.sync import Scope, is_document, patterns


def external_scope(external: ExternalDocs) -> Scope:
    """The files of the folder that are indexed: documents that match the patterns.

    Raises:
        SchemaValidationError: a pattern is invalid.
    """
    try:
        selected = patterns(external.include_patterns, external.exclude_patterns)
    except ValueError as error:
        message = f"external_docs: a pattern is invalid: {error}"
        detail = FieldError("external_docs", message)
        raise SchemaValidationError(f"The project configuration is invalid: {message}", [detail]) from error
    return lambda path: is_document(path) and selected(path)
