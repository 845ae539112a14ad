"""The running service: a ledger of cases, people and decisions, behind an HTTP API and pages.

It is built in floors. A module imports from its own floor and from those below it, never from above
(`tests/test_import_graph.py` holds this):

1. `errors`: what the service refuses, with the HTTP status of the answer;
2. `store`: the database: connections, tables, migrations, the writer, keys, settings;
3. `ledger`: what is on record, and every change of it, as functions over an open transaction;
4. `decide`: who gets which case: the model in force, routing on arrival, bid prices, plans;
5. `imports`: files that come in;
6. `jobs`: refits and backtests in processes of their own; `large_changes`: files and plans in pieces;
   `posting`, `sending`, `dispatching`: requests to programs of others, webhooks, cases for machines;
   `openid`: accounts of an OpenID Connect provider;
7. `monitor`: the checks that raise alerts; `backup`: copies of the ledger, checked and brought back;
8. `reports`: what people want to know of a shift, of everybody and of models;
9. `core`: one process of the service, which owns the parts above and their caches;
10. `web`: HTTP. `web.common`, `web.middleware`, `web.admission` and `web.traced` serve both `web.api` (for
   programs) and `web.pages` (for people), which do not import each other; `web.app` puts them together;
11. `demo` and `run`: a simulated desk, and starting a service.

Only the floors up to `reports` know the tables; `web` asks them for frozen rows and formats these.
"""
