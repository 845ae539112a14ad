"""`DECCAF_DATABASE=... python -m deccaf.service PORT`: on loopback, for programs that start it.

Nothing is imported before it is run: whatever reads a file imports this module too.
"""

from __future__ import annotations

import os
import sys


def main(arguments: list[str]) -> None:
    """Serve until somebody ends it."""
    from deccaf.service.run import CONFIG_VARIABLE, DATABASE_VARIABLE, OPENID_VARIABLE, serve

    config, openid = os.environ.get(CONFIG_VARIABLE), os.environ.get(OPENID_VARIABLE)
    serve(os.environ[DATABASE_VARIABLE], "127.0.0.1", int(arguments[0]), config=config, openid=openid)


if __name__ == "__main__":
    main(sys.argv[1:])
