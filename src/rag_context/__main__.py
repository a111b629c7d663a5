"""`python -m rag_context` is the command `rag-context`."""

from rag_context.cli import main

if __name__ == "__main__":
    main()
