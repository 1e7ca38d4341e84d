"""Kumquat: what is installed, under one name.

    from kumquat.testing import broker        a real broker for your tests
    from kumquat.spark import read_subject    Spark sessions, subjects as DataFrames, pipelines

The rest (`kumquat.core`, `kumquat.gateway`, `kumquat.meta`) is the broker itself. Other people's
code should not import it.

In a checkout `core`, `gateway`, `meta` and `spark` are links to the folders at the top of the
repository. In the wheel they are folders. So each module has one name everywhere, for Python, mypy,
pytest and editors alike; an entry in `__path__` would serve Python alone. Names like `core` and
`gateway` at the top of an installation would hide folders of the same name in the user's project.
"""
