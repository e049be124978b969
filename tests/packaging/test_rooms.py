"""The plan of the house: packages of `kaestat`, and what each may import."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "kaestat"
MOST_ROOMS, MOST_FLOORS, MOST_FLAT_MODULES = 15, 8, 2


def imported(source: str, module: str) -> set[str]:
    """Dotted names that the source of ``module`` imports anywhere, in functions and under TYPE_CHECKING too."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: imports in kaestat are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith("kaestat.")}


def plan(package: Path) -> dict[str, set[str]]:
    """The rooms at the top of a package, each with those that it imports. ``__init__`` only hands names on."""
    rooms = {path.stem: set() for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        targets = {name.split(".")[1] for name in imported(path.read_text(), str(path))}
        if room != "__init__":
            rooms[room] |= (targets & set(rooms)) - {room}
    return rooms


def floors(rooms: dict[str, set[str]]) -> dict[str, int]:
    """Each room's floor: one above the highest that it imports. Rooms that import in a circle raise."""
    found: dict[str, int] = {}
    for room in TopologicalSorter(rooms).static_order():
        found[room] = 1 + max((found[below] for below in rooms[room]), default=0)
    return found


def test_rooms_are_few_and_import_one_way():
    rooms = plan(PACKAGE)
    assert len(rooms) <= MOST_ROOMS
    assert sum((PACKAGE / f"{room}.py").exists() for room in rooms) <= MOST_FLAT_MODULES
    assert max(floors(rooms).values()) <= MOST_FLOORS


def test_the_ground_imports_no_other_room():
    assert plan(PACKAGE)["core"] == set()
