"""The command line: parse, call the library, show; data on stdout or --out, everything else on stderr."""

import gc
import os

from deccaf.cli.interrupt import stopped_quietly

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # see `deccaf.threads`; asked for before NumPy starts more
gc.set_threshold(50_000, 20, 20)  # imports leave no garbage, and looking for it takes a tenth of a start
with stopped_quietly():  # the libraries take seconds
    from deccaf.cli.app import app, main

__all__ = ["app", "main"]
