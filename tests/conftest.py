"""Settings for every area of the suite."""

from hypothesis import HealthCheck, settings

# Timing never decides a test, however busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
