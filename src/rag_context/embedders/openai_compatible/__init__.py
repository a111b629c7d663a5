"""Embeds through a server with OpenAI's API: LM Studio, Ollama, llama.cpp, vLLM, TEI, OpenAI, or our own."""

from rag_context.embedders.openai_compatible.embedder import OpenAIEmbedder

__all__ = ["OpenAIEmbedder"]
