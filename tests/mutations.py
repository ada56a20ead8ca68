"""Take out what carries the load, one thing at a time, and see that a test turns red.

    python -m tests.mutations               all of them
    python -m tests.mutations token lease   those whose names contain one of the words
    python -m tests.mutations --part 2/24   the second 24th: .ci/run takes one in turn
    python -m tests.mutations --list

Each mutation is made in a copy of the project, where the tests that guard it are run until one
fails (tests/mutating.py). A mutation that no test notices fails the whole: the mechanism it
removes is not tested.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.mutated_batch_retries import BATCH_RETRIES
from tests.mutated_batches import BATCHES
from tests.mutated_claims import (
    CHOICE,
    CHOICES,
    CHOSEN,
    CLAIMS,
    EXPLAINED,
    HEADS,
    LANE,
    RATE,
    RATES,
    SQL,
    TOLD,
    WORKER,
)
from tests.mutated_dependants import DEPENDANTS
from tests.mutated_fillings import FILLINGS
from tests.mutated_http import DOORS, RULES
from tests.mutated_inputs import INPUTS
from tests.mutated_looks import LOOKS
from tests.mutated_metrics import METRICS
from tests.mutated_process import PROCESS
from tests.mutated_pump import PUMP
from tests.mutated_rooms import ROOMS
from tests.mutated_rows import ODD_ROWS
from tests.mutated_schedules import SCHEDULES
from tests.mutated_session import SESSION_CARE
from tests.mutated_sql import STATEMENTS
from tests.mutated_tenant import TENANT
from tests.mutated_trees import OVER_HTTP
from tests.mutating import Mutation, survivors_of
from tests.variants import part_of

MUTATIONS = (
    *(Mutation(*given) for given in PUMP),
    *(Mutation(*given) for given in LOOKS),
    *(Mutation(*given) for given in SCHEDULES),
    *(Mutation(*given) for given in ROOMS),
    *(Mutation(*row) for row in ODD_ROWS),
    *(Mutation(*parts) for parts in INPUTS),
    *(Mutation(*door) for door in (*DOORS, *RULES)),
    *(Mutation(*each) for each in OVER_HTTP),
    *(Mutation(*filling) for filling in FILLINGS),
    *(Mutation(*lines) for lines in DEPENDANTS),
    *(Mutation(*fold) for fold in (*BATCHES, *BATCH_RETRIES)),
    *(Mutation(*entry) for entry in TENANT),
    *(
        Mutation(
            f"token of a {name}",
            f"{SQL}{file}.sql",
            "AND job.claim = outcome.claim",
            "",
            ("tests/worker/test_finish.py",),
        )
        for name, file in (
            ("success", "finish_successful"),
            ("failure", "finish_unsuccessful"),
            ("give-back", "give_back_jobs"),
        )
    ),
    Mutation(
        "token that rises at a give-back",
        f"{SQL}give_back_jobs.sql",
        "claim = mod(GREATEST(job.claim, 0), 9000000000000000000) + 1,",
        "",
        ("tests/worker/test_give_back.py",),
    ),
    Mutation(
        "token of an atomic finish",
        f"{WORKER}running/calling.py",
        "if not cursor.fetchall():",
        "if cursor.fetchall() is None:",
        ("tests/worker/test_atomic.py", "tests/process/test_kills.py"),
    ),
    Mutation(
        "attempt counted at claim",
        f"{SQL}claim_terms.py",
        "attempts = LEAST(GREATEST(job.attempts, 0), 2147483646) + 1,",
        "",
        ("tests/worker/test_claim.py",),
    ),
    Mutation(
        "SKIP LOCKED in the claim",
        f"{SQL}claim_jobs.sql",
        "FOR UPDATE SKIP LOCKED",
        "FOR UPDATE",
        (
            "tests/worker/test_claim.py::test_two_connections_that_claim_at_once_both_get_full_and_disjoint_batches",
        ),
    ),
    Mutation(
        "SKIP LOCKED in the rescue",
        f"{SQL}rescue_jobs.sql",
        "FOR UPDATE SKIP LOCKED",
        "FOR UPDATE",
        ("tests/worker/test_rescue.py::test_two_rescuers_at_once_share_the_jobs",),
    ),
    Mutation(
        "lease thread",
        f"{WORKER}process/worker_process.py",
        "[self.leases, self.watchdog,",
        "[self.watchdog,",
        ("tests/worker/test_lost_lease.py::test_the_worker_goes_on_under_its_new_id",),
    ),
    Mutation(
        "lease that is lost for good",
        f"{SQL}renew_lease.sql",
        "AND {worker.is_live}\n    RETURNING",
        "AND worker.ended_at IS NULL\n    RETURNING",
        ("tests/worker/test_rescue.py::test_an_expired_lease_is_never_renewed",),
    ),
    Mutation(
        "bound of a crash loop",
        f"{SQL}rescue_jobs.sql",
        "counted.losses >= counted.most",
        "counted.losses >= 2147483647 + 0 * counted.most",
        ("tests/worker/test_rescue.py",),
    ),
    Mutation(
        "database clock at enqueue",
        "django_pgjobs/values/given.py",
        "return None, seconds_or_none(moment, name=name)",
        "return timezone.now() + moment, None",
        ("tests/test_clock.py",),
    ),
    Mutation(
        "database clock at promotion",
        f"{SQL}promote_due_jobs.sql",
        "job.due_at <= statement_timestamp()",
        "job.due_at <= statement_timestamp() + interval '1 hour'",
        ("tests/worker/test_promote.py",),
    ),
    Mutation(
        "scrubbing",
        "django_pgjobs/values/payload.py",
        'return text.encode("utf-8", "backslashreplace").decode("utf-8")',
        "return text",
        ("tests/worker/test_executor.py",),
    ),
    Mutation(
        "scrubbing of NUL",
        "django_pgjobs/values/payload.py",
        'text = text.replace("\\0", "\\u2400")',
        "pass",
        ("tests/worker/test_executor.py",),
    ),
    Mutation(
        "outcomes kept over a lost connection",
        f"{WORKER}claiming/writing.py",
        "self._completer.put_back(unanswered, is_sent=is_sent)",
        "pass",
        ("tests/worker/test_pump.py",),
    ),
    Mutation(
        "claims whose answer was lost",
        f"{WORKER}claiming/pump.py",
        "self.outlook.note_lost()",
        "pass",
        (
            "tests/worker/test_pump.py::test_a_claim_whose_answer_is_lost_goes_back_and_is_made_again",
        ),
    ),
    Mutation(
        "look between listening and sleeping",
        f"{WORKER}upkeep/listening.py",
        "travels_alone = True",
        "travels_alone = False",
        (
            "tests/worker/test_pump.py::test_a_worker_says_that_it_listens_before_it_looks_for_the_last_time",
        ),
    ),
    Mutation(
        "looks for transactions from before the flag",
        f"{WORKER}upkeep/listening.py",
        "self._look.take_over()",
        "self._look.look_by(0.0)",
        ("tests/worker/test_listening.py",),
    ),
    Mutation(
        "cleaning of connections",
        f"{WORKER}running/housekeeping.py",
        "reset_session(raw,",
        "(lambda *a, **k: None)(raw,",
        ("tests/worker/test_housekeeping.py",),
    ),
    Mutation(
        "timeout",
        f"{WORKER}running/watchdog.py",
        "elif attempt.interrupt(JobTimeout):",
        "elif False:",
        (
            "tests/worker/test_watchdog.py::test_the_timeout_of_the_task_holds_where_the_job_has_none",
        ),
    ),
    Mutation(
        "registry that imports nothing",
        "django_pgjobs/declaring/registry.py",
        "found: Any = sys.modules.get(module_name)",
        'found: Any = importlib.import_module(module_name or "os")',
        ("tests/test_registry.py",),
    ),
    Mutation(
        "lock of a job that was met",
        "django_pgjobs/enqueueing/merging.py",
        'return LOCK if task.on_conflict == "return" and task.unique_until == "claimed" else MEET',
        "return MEET",
        ("tests/races/test_unique.py",),
    ),
    Mutation(
        "order of keys in a batch",
        f"{SQL}write_terms.py",
        '    ORDER BY {it}.unique_key COLLATE "C"\n',
        "",
        ("tests/races/test_unique.py::test_two_batches_of_the_same_keys_do_not_wait_in_a_circle",),
    ),
    Mutation(
        "no merge into a claimed job",
        f"{SQL}enqueue_or_merge_jobs.sql",
        "job.status = 'ready' AND job.claim = 0",
        "TRUE",
        ("tests/test_unique.py",),
    ),
    Mutation(
        "second look at a job that was met",
        "django_pgjobs/enqueueing/merging.py",
        "TRIES = 20",
        "TRIES = 1",
        ("tests/races/test_unique.py",),
    ),
    Mutation(
        "scope of a unique key",
        f"{SQL}write_terms.py",
        "%(unique_until_claimed)s::boolean",
        "%(unique_until_claimed)s::boolean IS NULL",
        ("tests/test_merge.py",),
    ),
    Mutation(
        "bound of a debounce",
        f"{SQL}enqueue_or_merge_jobs.sql",
        "LEAST(job.enqueued_at, statement_timestamp())",
        "statement_timestamp()",
        ("tests/test_debounce.py",),
    ),
    Mutation(
        "twin of a requeued job",
        f"{SQL}requeue_jobs.sql",
        "    {job.on_occupied_key}\n    DO NOTHING\n",
        "",
        ("tests/test_unique_life.py",),
    ),
    Mutation(
        "wake-up for a job due earlier",
        f"{SQL}enqueue_or_merge_jobs.sql",
        "count(pg_notify('pgjobs', woken.queue_name))",
        "count(woken.queue_name)",
        (
            "tests/races/test_unique.py::test_idle_workers_hear_of_a_job_that_is_due_earlier_than_before",
        ),
    ),
    Mutation(
        "lock while a function merges",
        "django_pgjobs/enqueueing/merging.py",
        "found = _insert(task, LOCK, firsts, detailed=True)",
        "found = _insert(task, MEET, firsts, detailed=True)",
        ("tests/races/test_unique.py::test_no_argument_is_lost_between_mergers_and_a_claimer",),
    ),
    *(Mutation(name, f"{SQL}list_heads.sql", old, new, CLAIMS) for name, old, new in HEADS),
    *(Mutation(name, f"{SQL}terms.py", old, new, CLAIMS) for name, old, new in LANE),
    *(Mutation(name, f"{SQL}rate_terms.py", old, new, RATES) for name, old, new in RATE),
    *(Mutation(name, "django_pgjobs/choosing.py", old, new, CHOICES) for name, old, new in CHOICE),
    *(Mutation(name, "django_pgjobs/choosing.py", old, new, EXPLAINED) for name, old, new in TOLD),
    *(
        Mutation(name, f"{SQL}claim_chosen.sql", old, new, where)
        for name, old, new, where in CHOSEN
    ),
    Mutation(
        "tokens that are spent",
        f"{SQL}spend_tokens.sql",
        "    taken_since = recorded.taken_since\n",
        "    taken_since = state.taken_since\n",
        CLAIMS,
    ),
    Mutation(
        "tokens of jobs that were not claimed",
        f"{SQL}spend_tokens.sql",
        " AND job.worker_id = %(worker_id)s::bigint",
        "",
        ("tests/races/test_keyed_claims.py",),
    ),
    Mutation(
        "end of a session that stands still with the keyed claim",
        "django_pgjobs/queries/connection.py",
        "        if is_idle and asks:",
        "        if False:",
        ("tests/worker/test_sessions.py",),
    ),
    Mutation(
        "snapshots of a claim behind a pooler with another isolation",
        "django_pgjobs/queries/sends.py",
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "BEGIN",
        ("tests/races/test_keyed_claims.py",),
    ),
    *(Mutation(*mutated) for mutated in METRICS),
    *(Mutation(*mutated) for mutated in PROCESS),
    *(Mutation(*change) for change in SESSION_CARE),
    *(Mutation(*each) for each in STATEMENTS),
    Mutation(
        "walk behind the lane that was served last",
        f"{WORKER}claiming/groups.py",
        "self._cursors[group] = last_served(",
        "last_served(",
        ("tests/worker/test_places.py",),
    ),
    Mutation(
        "permission to act",
        "django_pgjobs/permissions.py",
        " and user.has_perm(verb.value)",
        "",
        ("tests/admin/test_bulk_pages.py::test_who_may_only_view_can_do_nothing",),
    ),
    Mutation(
        "masking of secrets",
        "django_pgjobs/declaring/redaction.py",
        "name: MASK if pattern.search(name) else",
        "name: item if pattern.search(name) else",
        ("tests/test_redaction.py",),
    ),
    Mutation(
        "pin of a bulk change",
        "django_pgjobs/bulk/selection.py",
        "id__lte=self.max_id",
        "id__gte=0",
        ("tests/admin/test_bulk.py", "tests/admin/test_lookups.py"),
    ),
)


def main() -> int:
    """Run the mutations that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="run the mutations whose names contain a word")
    parser.add_argument("--list", action="store_true", help="name the mutations and end")
    parser.add_argument(
        "--part",
        type=part_of,
        default=slice(None),
        metavar="N/M",
        help="run each Mth of them from the Nth on",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        # Most of the time a mutated test waits for what does not come.
        default=3 * (os.cpu_count() or 1),
        help="how many to run at the same time, default: %(default)s",
    )
    arguments = parser.parse_args()
    chosen = [
        mutation
        for mutation in MUTATIONS
        if not arguments.words or any(word in mutation.name for word in arguments.words)
    ][arguments.part]
    if not chosen:
        parser.error("no mutation is chosen; --list names them")
    if arguments.list:
        for mutation in chosen:
            print(f"{mutation.name:40} {mutation.file}")
        return 0
    survivors = survivors_of(chosen, at_once=arguments.at_once)
    print(f"{len(chosen) - len(survivors)} caught, {len(survivors)} not caught {survivors or ''}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
