"""Handling failures of dependencies: circuit breakers, deadlines, retries, limits of concurrency."""
