"""What is published: the wheel, and that it works where nothing else of the project is."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import helpers

ROOT = helpers.ROOT
PACKAGE = ROOT / "django_pgjobs"
# One file of each kind that is no Python and is asked for when it is missed.
NEEDED = (
    "py.typed",
    "sql/claim_jobs.sql",
    "templates/admin/pgjobs/*.html",
    "static/*/*.css",
    "static/*/*.js",
    "locale/de/LC_MESSAGES/django.mo",
    "http/openapi.json",
    "migrations/0001_*.py",
)
# Needs no server: reads a statement, a template, a catalogue and a file of `static`.
LOOK = """
import django_pgjobs
from django.conf import settings
settings.configure(
    INSTALLED_APPS=[f"django.contrib.{name}" for name in
                    ("admin", "auth", "contenttypes", "messages", "staticfiles")
                    ] + ["django_pgjobs"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "none"}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
)
import django; django.setup()
from django.apps import apps
from django.contrib.staticfiles.finders import find
from django.template.loader import get_template
from django_pgjobs.sql import load
from pathlib import Path
folder = Path(django_pgjobs.__file__).parent
assert folder.parent == Path(HOME), folder
assert "SKIP LOCKED" in load("claim_jobs")
assert apps.get_model("pgjobs", "Job")
for path in (folder / "templates").rglob("*.html"):
    get_template(str(path.relative_to(folder / "templates")))
assert all(find(str(path.relative_to(folder / "static")))
           for path in (folder / "static").rglob("*.css"))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    if importlib.util.find_spec("hatchling") is None:
        helpers.skip("hatchling is not installed (pip install hatchling)")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [found] = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_contains_all_our_files_and_no_others(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
        [license_file] = [name for name in archive.namelist() if name.endswith("/LICENSE")]
        assert b"MIT License" in archive.read(license_file)
    ours = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.is_file() and not re.search(r"/(__pycache__|\..*)/", str(path))
    }
    assert shipped == ours
    for pattern in NEEDED:
        assert any(Path(name).match(f"django_pgjobs/{pattern}") for name in shipped), pattern
    suffixes = {Path(name).suffix for name in shipped}
    data = {".sql", ".html", ".css", ".js", ".json", ".svg", ".po", ".mo"}
    assert suffixes <= {".py", ".typed"} | data


@pytest.mark.slow
def test_the_wheel_works_outside_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Installed with nothing of its own but what it ships; Django comes from this environment."""
    home = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home)
    code = f"import sys; HOME = {str(home)!r}; sys.path.insert(0, HOME)\n{LOOK}"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
