"""The peers: other stores for an agent's conversation, each behind the same small hand as the floor.

These modules run in the peers' own environment. Each uses its store the way its documentation shows
and gets the benefit of the doubt: where one call makes a turn durable, nothing else is called.
"""
