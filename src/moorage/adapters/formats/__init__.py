"""Formats: convert messages of each framework to messages of the log.

Pure functions over plain values. No module here imports a framework.
"""
