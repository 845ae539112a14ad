"""The command line: parse, call the library, show; data on stdout or --out, everything else on stderr."""

from deccaf.cli.app import app, main

__all__ = ["app", "main"]
