"""The version that is installed."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of


def version() -> str:
    try:
        return version_of("kumquat-gateway")
    except PackageNotFoundError:
        return "(not installed)"
