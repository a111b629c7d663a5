"""The read path: a query goes down the chain and always comes back with a labelled answer.

`chain` reads top to bottom (level 4, 1, 2, 3); `retrievers` read from the ports; `fusion` and `ranking` are pure.
"""
