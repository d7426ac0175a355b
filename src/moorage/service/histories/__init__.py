"""Histories: sessions that others kept, made into ours.

`state_files` reads the state.json files of scripts, `transcripts` the conversations that Claude
Code records. Both work on what they are given; who reads the files is no matter of theirs.
"""
