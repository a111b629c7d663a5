"""HTTP and MCP: requests in, request models to the service, answers and errors out."""
