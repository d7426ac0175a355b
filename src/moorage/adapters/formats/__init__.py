"""Formats: how each framework writes a message, and how the log says the same.

Pure functions over plain values. No module here imports a framework.
"""
