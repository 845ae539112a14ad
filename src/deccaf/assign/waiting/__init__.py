"""What waiting costs, and what follows from it: who takes which case, and in which order.

`harm` says what a case costs while it waits and once it is late; `order` puts one person's cases in order;
`queues` prices a further case against everybody's queue, and says what to take up next; `schedule` settles
who and when together for cases that are all there.
"""
