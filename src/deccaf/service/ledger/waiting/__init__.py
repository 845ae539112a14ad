"""What waiting costs at the desk: which case somebody takes up next, what a further case would cost, and what
will be late.
"""
