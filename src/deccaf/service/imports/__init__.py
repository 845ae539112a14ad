"""Files that come in.

`reading` reads them in a confined process, `case_import` checks cases row by row and enters those that
can be. A history of decisions that were made elsewhere: `past_import` checks it, `past_columns` proposes
what its columns are, `past_records` keeps it and takes it back.
"""
