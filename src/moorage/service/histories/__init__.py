"""Histories: sessions stored by other programs, converted into ours.

`state_files` reads the state.json files of scripts, `transcripts` the conversations that Claude
Code records. Both work on the given text; their callers read the files.
"""
