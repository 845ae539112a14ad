"""The command line: parse, call the library, show; data on stdout or --out, everything else on stderr."""

from deccaf.cli.interrupt import stopped_quietly

with stopped_quietly():  # the libraries take seconds
    from deccaf.cli.app import app, main

__all__ = ["app", "main"]
