"""Moorage over HTTP on the caller's side: the table of operations and the client generated from it."""
