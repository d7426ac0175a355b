"""How fast moorage is, measured beside plain SQLite tables and beside its peers in one run.

`python -m bench` runs everything; `bench/README.md` says how to read the answer.
"""
