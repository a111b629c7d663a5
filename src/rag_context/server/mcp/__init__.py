"""MCP: the registry of tools, documents as resources, and prompts, over Streamable HTTP and over stdio."""
