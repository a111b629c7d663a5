"""The read path: a query goes down the chain and always comes back with a labelled answer.

`chain` reads top to bottom (level 4, 1, 2, 3); `legs` ask the ports; `fusion` and `ranking` are pure.
"""
