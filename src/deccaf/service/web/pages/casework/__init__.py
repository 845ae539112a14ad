"""How a case looks to whoever decides it, and where a lead says so.

| module | what it does |
|---|---|
| `facts` | a case's values with labels, units, groups and order, links and images, what is unusual |
| `display` | the page where a lead writes the table `[display]` |
"""
