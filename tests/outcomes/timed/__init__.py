"""Outcomes that depend on time: under load, through a pause, beside hostile input. They run one after the other."""
