"""The process that prepares documents: the tasks of `ingest.preparing`, with the tokenizer of a model."""

from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.ingest.preparing import serve
from rag_context.resilience.confinement import ProcessLimits


def run(limits: ProcessLimits) -> None:
    """Answer tasks on standard input until it ends."""
    serve(limits, ModelTokenizer)
