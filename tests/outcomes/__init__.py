"""What the memory promises, tried from outside: a real process, queried over HTTP, MCP or the command line.

One module per promise or finding. A module that measures answers against time belongs in `timed/`, which runs by
itself, after everything else. A module shares one server between its tests wherever they allow it.
"""
