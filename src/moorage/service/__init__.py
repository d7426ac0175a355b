"""The use cases: one function for each thing, reading as the sentence that describes it.

A function checks the request, lets the core decide and the store commit. Every door calls
these same functions; none of them knows which door called.
"""
