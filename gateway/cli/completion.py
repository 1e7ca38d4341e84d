"""`kumquat completion SHELL`: what a shell needs to complete the commands, options and names of `kumquat`.

    source <(kumquat completion bash)       in ~/.bashrc, or zsh in ~/.zshrc
    kumquat completion fish | source        in ~/.config/fish/config.fish

It prints Click's own script. At each TAB that script runs `kumquat` with a variable (COMPLETE in
command.py). The answer has topics and groups of the broker of `--bootstrap` or KUMQUAT_BOOTSTRAP, if it
answers at once: see names.py.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kumquat.gateway.cli.command import COMPLETE, DONE, Action

SHELLS = ["bash", "zsh", "fish"]


@click.command("completion", cls=Action)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """What bash, zsh or fish needs to complete commands and names."""
    found = get_completion_class(shell)
    assert found is not None
    root = ctx.find_root()
    # Not source(): for bash it also runs a bash, to look at its version.
    made = found(root.command, {}, "kumquat", COMPLETE)
    print(made.source_template % made.source_vars())
    return DONE
