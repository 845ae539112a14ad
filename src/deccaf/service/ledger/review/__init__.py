"""What a reviewer does with a case beside deciding it: taking a decision back, parking, notes, more time.

| module | what it does |
|---|---|
| `undo` | the last decision is taken back, for a while; the record keeps both |
| `parking` | a case is put aside and taken up again; more time for the one in hand; notes |
| `golden` | cases with a known truth among their others |
"""
