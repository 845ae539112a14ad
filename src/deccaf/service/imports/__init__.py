"""Files that come in: read in a confined process, checked row by row, entered whole."""
