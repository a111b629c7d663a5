"""Every operation, declared once: what HTTP, MCP, OpenAPI, the client, the command line and the reference share.

`table.OPERATIONS` has all of them; a command that needs one imports the module where it is declared, and starts faster.
"""

from rag_context.api.operations.operation import Access, Operation, Toolset

__all__ = ["Access", "Operation", "Toolset"]
