"""Files that come in.

`reading` reads them in a confined process, `case_import` checks cases row by row and enters those that
can be, `past_import` does the same with a history of cases that were decided elsewhere.
"""
