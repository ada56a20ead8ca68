"""The measured systems, in the order of the columns."""

from __future__ import annotations

from tests.benchmarks.system import System
from tests.benchmarks.systems.bare import Bare
from tests.benchmarks.systems.django_ox import DjangoOx
from tests.benchmarks.systems.django_tasks_db import DjangoTasksDb
from tests.benchmarks.systems.ours import Ours
from tests.benchmarks.systems.pgqueuer import PgQueuer
from tests.benchmarks.systems.procrastinate import Procrastinate

SYSTEMS: tuple[type[System], ...] = (
    Bare,
    Ours,
    DjangoTasksDb,
    DjangoOx,
    Procrastinate,
    PgQueuer,
)
