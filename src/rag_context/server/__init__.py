"""The doors: HTTP in, request models to the service, answers and errors out."""
