"""How we treat what may fail: breakers that refuse at once, deadlines that hold, retries that are polite."""
