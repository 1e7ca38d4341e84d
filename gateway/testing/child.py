"""The main program of a test broker's process: the `kumquat` command, whatever the user's project contains.

broker.py runs this file by its path and with -P, so that Python puts no folder of the user's before the
standard library. The file then loads the package `kumquat` from the folder in which it lies itself. The
child so runs the same code as the test, however the test came to import it: installed, from a checkout, or
from a folder that a conftest.py put on the path.

The folder beside the package goes to the end of the path. It may be the only one that has what Kumquat
needs (`pip install --target`), and at the end it hides nothing, neither in the standard library nor in
what is installed.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def run() -> int:
    package = Path(__file__).parents[2]
    spec = spec_from_file_location(
        "kumquat", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["kumquat"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.append(str(package.parent))

    from kumquat.gateway.cli.main import main  # found from here on

    return main()


if __name__ == "__main__":
    sys.exit(run())
