"""Language models that write answers; adapters, as the embedders are."""
