"""A candidate model beside today's practice: as its shadow, then with a share of the cases by lot.

| module | what it does |
|---|---|
| `trial_records` | a trial begins, gets its share, ends; the one that runs now |
| `arms` | which arm an arriving case is in, and what either arm would choose, on record |
| `planned_arms` | the same for cases that are planned together |
"""
