"""`python -m tests.chaos`: sets Django up, with a database that is there later (`world`)."""

from __future__ import annotations

import os
import sys

import django

if __name__ == "__main__":
    os.environ["DATABASE_URL"] = "postgresql://postgres@127.0.0.1:1/pgjobs"
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from tests.chaos.run import main

    sys.exit(main())
