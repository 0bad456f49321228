"""Settings that all tests share."""

from hypothesis import settings

settings.register_profile("fewstep", deadline=None)  # machines are shared, so the time of an example means nothing
settings.load_profile("fewstep")
