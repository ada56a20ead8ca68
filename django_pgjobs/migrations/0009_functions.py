"""No compilation in the functions that read tables.

They look at a few rows by an index. `enable_seqscan = off` gives the plans of two of them a cost
at which PostgreSQL before 18 compiles them with LLVM, where that is installed: cancelling a job
with three dependants took 40 ms instead of 3.
"""

from __future__ import annotations

from django.db import migrations

from django_pgjobs.operations import PostgresSQL

COMPILE_NOTHING = """
ALTER FUNCTION pgjobs_resolve_v1(bigint[]) SET jit = off;
ALTER FUNCTION pgjobs_recheck_v1() SET jit = off;
ALTER FUNCTION pgjobs_wake_v1() SET jit = off;
"""
COMPILE_AGAIN = """
ALTER FUNCTION pgjobs_resolve_v1(bigint[]) RESET jit;
ALTER FUNCTION pgjobs_recheck_v1() RESET jit;
ALTER FUNCTION pgjobs_wake_v1() RESET jit;
"""


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0008_losses")]
    operations = [PostgresSQL(COMPILE_NOTHING, COMPILE_AGAIN)]
