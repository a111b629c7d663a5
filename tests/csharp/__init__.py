"""The C# client compiled by a real compiler and run against a real server: `make csharp`.

Not among the tests that always run, for a C# compiler is not available everywhere; those hold the client's source to
the published schemas.
"""
