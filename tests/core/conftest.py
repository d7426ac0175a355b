"""Property tests on machines that are busy with other things: a slow example is no failure."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
