"""HTTP: `app` puts the API and the pages together, behind the `middleware` that limits requests.

`common` is what both need. Nothing here knows the tables: the floors below are asked for rows, which are
formatted here.
"""
