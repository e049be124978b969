"""Commands of modules with one command, as their tests call them."""

from collections.abc import Callable

import typer


def app(command: Callable[..., None]) -> typer.Typer:
    """What ``typer.run`` makes of a command."""
    found = typer.Typer()
    found.command()(command)
    return found
