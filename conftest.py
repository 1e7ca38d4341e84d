"""What all tests have in common: how Hypothesis draws, and `--long`.

The same examples in each run, and none is judged by the clock: whoever changes something must not be
stopped by what chance turns up, or by a busy machine. To look for what has not been found yet:

    pytest --hypothesis-profile explore gateway/groups/tests/test_machine.py
"""

import pytest
from hypothesis import HealthCheck, settings

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("same", _PATIENT, derandomize=True, database=None)
settings.register_profile("explore", _PATIENT, derandomize=False)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also what takes minutes")
