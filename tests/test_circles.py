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
