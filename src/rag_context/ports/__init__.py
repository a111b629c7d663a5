"""The interfaces between the application and its stores and models, as protocols in the terms of the domain.

Adapters fit structurally. They are async, raise only our own errors, apply the whole `Filter` themselves and
order by descending score. Sequences come back in the order of the argument; unknown ids are left out of mappings.
"""
