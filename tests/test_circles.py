"""No circles of imports: neither between modules, nor between the rooms of the admin."""

from __future__ import annotations

from pathlib import Path

from tests.test_house import PACKAGE, ROOT, imported, modules, refuse, relative


def test_rooms_of_the_admin_import_each_other_one_way() -> None:
    arrows: dict[str, set[str]] = {}
    for path in modules(PACKAGE / "admin"):
        room = path.relative_to(PACKAGE / "admin").with_suffix("").parts[0]
        names = (name.split(".") for _, name in imported(path))
        targets = {words[2] for words in names if words[:2] == ["django_pgjobs", "admin"]}
        arrows.setdefault(room, set()).update(targets - {room})
    refuse(
        circles(arrows),
        "no circles, move what two rooms share to a module beside admin/pages.py",
    )


def test_modules_import_each_other_one_way() -> None:
    refuse(
        circles(
            {
                relative(path): {module_of(name) for _, name in imported(path)} - {relative(path)}
                for path in modules()
            }
        ),
        "no circles, move what two modules share to a third",
    )


def test_modules_of_http_import_each_other_as_their_map_says() -> None:
    home = PACKAGE / "http"
    groups: list[list[str]] = []
    for line in (home / "__init__.py").read_text().partition("\nThe modules.")[2].splitlines():
        if line.startswith("    "):
            # A group that needs two lines has its name on the first.
            groups += [[]] if line[4] != " " else []
            groups[-1] += line[21:].split()
    names = [name for group in groups for name in group]
    arrows = [
        (relative(path).split("/")[2].removesuffix(".py"), other.split(".")[2])
        for path in modules(home)
        for _, other in imported(path)
        if other.startswith("django_pgjobs.http.")
    ]
    wrong = {
        f"{name} imports {other}"
        for name, other in arrows
        for reachable in [[*groups[0], *next(each for each in groups if name in each)]]
        if names.index(other) > names.index(name)
        or not (other in reachable or name in ("views", "urls"))
    }
    refuse(wrong, "mend the import, or the map in django_pgjobs/http/__init__.py")
    found = {path.stem for path in home.iterdir() if path.suffix == ".py" or path.name == "views"}
    assert set(names) == found - {"__init__"}


def module_of(name: str) -> str:
    """Return the file of the package that an imported name leads to, "" for other packages."""
    words = name.split(".")
    places = (ROOT.joinpath(*words[:end]) for end in range(len(words), 0, -1))
    files = (file for at in places for file in (at.with_suffix(".py"), at / "__init__.py"))
    found = next(filter(Path.is_file, files), None) if words[0] == "django_pgjobs" else None
    return relative(found) if found else ""


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """Return what is in a circle of imports, or between two, and what of it that imports."""
    left = dict(arrows)
    # What imports none of those that are left, or is imported by none, is in no circle.
    while free := [
        name
        for name, targets in left.items()
        if not targets & left.keys() or not any(name in each for each in left.values())
    ]:
        for name in free:
            del left[name]
    return [f"{name} imports {sorted(targets & left.keys())}" for name, targets in left.items()]
