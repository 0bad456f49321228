"""Settings of all tests."""

from hypothesis import settings

settings.register_profile("fewstep", deadline=None)  # machines are shared: how long an example takes says nothing
settings.load_profile("fewstep")
