"""Moorage over HTTP, seen from the caller's side: the table of operations and the client made from it."""
