"""The error for a version of a framework that an adapter does not fit."""

from importlib.metadata import PackageNotFoundError, version


def misfit(reason: object, package: str, tested: str) -> str:
    """The message if a package lacks something that an adapter needs; it names the installed version."""
    try:
        there = f"version {version(package)}"
    except PackageNotFoundError:
        there = "no installed version (a folder of its source, if anything)"
    return f"{reason}. Of {package} there is {there}; kaestat's adapter was tested with {tested}."
