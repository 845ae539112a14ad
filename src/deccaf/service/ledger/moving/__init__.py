"""Work that a lead moves: from one person to another, away from somebody who leaves, back to who returns.

`weighing` says who would get each case and what that costs, without writing; `reassignment` moves cases;
`absence` previews an absence and undoes one; `priority` says which cases come first in a queue.
"""
