"""The versions of a framework that an adapter supports, for the error with another version."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True)
class Upstream:
    """A framework that an adapter supports."""

    name: str  # Name, in its authors' spelling
    package: str  # Name of its distribution
    known: str  # Versions and commits with which the adapter was tested

    def misfit(self, reason: object) -> str:
        """The error message if the framework lacks something that the adapter needs; it names the installed version."""
        try:
            found = f"version {version(self.package)}"
        except PackageNotFoundError:
            found = "no installed version (a folder of its source, if anything)"
        return f"{reason}. Of {self.name} there is {found}; kaestat's adapter was run with {self.known}."

    @contextmanager
    def imports(self) -> Iterator[None]:
        """A context for imports from the framework and look-ups in it; an ImportError says which versions fit."""
        try:
            yield
        except (ImportError, AttributeError) as error:
            raise ImportError(self.misfit(error)) from error
