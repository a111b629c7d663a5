"""`python -m rag_context` is the command `rag-context`."""

from rag_context.cli.command_line import main

if __name__ == "__main__":
    main()
