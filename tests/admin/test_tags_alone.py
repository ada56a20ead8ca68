"""The admin's template tags are loaded where the admin was not, by a check of a theme for one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from django.conf import settings

from tests.helpers import ROOT

LOAD = "import django; django.setup(); import django_pgjobs.templatetags.pgjobs_admin"


def test_tags_can_be_loaded_before_the_admin() -> None:
    apps = [
        name.replace("contrib.admin", "contrib.admin.apps.SimpleAdminConfig")
        for name in settings.INSTALLED_APPS
    ]
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PGJOBS_TEST_SETTINGS": json.dumps({"INSTALLED_APPS": apps}),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", LOAD], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
