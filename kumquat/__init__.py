"""Kumquat: what is installed, under one name.

    from kumquat.testing import broker        a real broker for your tests
    from kumquat.consumer import retry        a message that could not be handled comes again later
    from kumquat.spark import read_subject    Spark sessions, subjects as DataFrames, pipelines

The rest (`kumquat.core`, `kumquat.gateway`, `kumquat.meta`) is the broker itself. Other people's code
should not import it.

In a checkout `core`, `gateway`, `meta` and `spark` are links to folders at the top of the repository. In
the wheel they are folders. So each module has the same name everywhere, for Python, mypy, pytest and
editors. (An entry in `__path__` would only help Python.) Why one name: `core` or `gateway` at the top of an
installation would hide a folder of that name in the user's project.
"""
