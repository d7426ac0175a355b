"""Histories: sessions stored by other programs, converted into ours.

Each module works on the given text; their callers read the files.
"""
