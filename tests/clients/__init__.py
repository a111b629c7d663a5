"""Real agent clients, each for a turn or two, against a model of this package's own on loopback.

`make test-clients` installs them from npm at the versions of `package.json`. Nothing here reaches another machine.
"""
