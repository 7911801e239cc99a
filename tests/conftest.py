"""Settings for every area of the suite."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Timing never decides a test, however busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def deterministic_mode_ends_with_the_test() -> Iterator[None]:
    """Reset the mode of torch: a deterministic run sets it for the whole process."""
    yield
    if torch := sys.modules.get("torch"):
        torch.use_deterministic_algorithms(False)
