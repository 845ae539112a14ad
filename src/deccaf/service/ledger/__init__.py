"""What is on record, and every change of it, as functions over an open transaction.

| module | what it keeps |
|---|---|
| `trail` | the audit trail: one line for everything that happened |
| `people` | teams and experts |
| `shifts` | shifts and their rosters, the shift that runs now |
| `roster` | how a roster changes during the day |
| `desk` | a shift under lock: who has room at which price |
| `routing` | the choice of a maker for one case (no database) |
| `case_records` | cases: entering them, looking at them |
| `assignments` | who has which case and why: the one place that inserts assignments |
| `placing` | giving cases to somebody |
| `claims` | a reviewer's day: claim, decide, hand back; claims that expire |
| `labels` | what the truth turned out to be |
| `versions` | model files and which one is in force |
| `moving` | work that a lead moves: reassignment, absence, priority |
| `record` | the whole record: search, audit, a person's data, erasure |
| `machines` | who is a machine, which of them answer, which cases are under way to them |
| `check` | whether everything adds up |
| `backup` | backups of SQLite, taken while the service runs, checked and restored |

Locks are taken in one order, so that no two changes wait for each other in a circle: the idempotency key
(`store.idempotency.earlier`), the person whose claim it is (`people.take_turn`), the shift
(`desk.open_desk`, whoever takes or gives back capacity), assignments, cases (`case_records.lock`, by id).
Counting is done by conditional updates, with constraints of the database behind them.
"""
