"""Webhooks: where programs of others are told what happened, and what is still to be told them.

`hooks` are the addresses that a lead gave, `changes` adds and ends them. `outbox` writes what is to be sent
in the transaction of the change itself, with the line of the trail, so that neither is there without the
other; `service.sending` sends it.
"""
