"""The counts on the tabs of the list of jobs against plain SQL."""

from __future__ import annotations

from django.test import Client

from django_pgjobs.admin.job_list.tabs import MAX_COUNTED, MAX_SAMPLED, TABS
from tests.admin.lists import counts, listed
from tests.sizes.compared import plain, query, steady

BY_TAB = """
SELECT tab, count(*)
FROM pgjobs_job
CROSS JOIN LATERAL (
    VALUES (CASE
        WHEN status <> 'ready' THEN status
        WHEN hold IS NOT NULL THEN 'blocked'
        WHEN due_at IS NULL THEN 'ready'
        WHEN attempts > 0 THEN 'retrying'
        ELSE 'scheduled'
    END)
) AS each (tab)
GROUP BY tab
"""
# How many there are among which those of some tabs are counted.
SAMPLED = """
SELECT count(*), count(*) FILTER (WHERE status = 'ready' AND due_at IS NOT NULL)
FROM pgjobs_job WHERE finished_at IS NULL
"""


def check(client: Client) -> None:
    """Check what each tab says."""
    ([by_tab, [(live, due)]]), said = steady(
        lambda: [dict(query(BY_TAB)), query(SAMPLED)], lambda: counts(listed(client))
    )
    by_tab["all"] = sum(by_tab.values())
    sampled_from = {"live": live, "due": due, "": 0}
    assert said.keys() == {tab.key for tab in TABS}
    for tab in TABS:
        check_tab(tab.key, plain(said[tab.key]), by_tab.get(tab.key, 0), sampled_from[tab.sample])
    if due >= MAX_SAMPLED:
        found = [_number(said[key]) for key in ("scheduled", "retrying")]
        assert sum(found) == MAX_SAMPLED or MAX_COUNTED in found


def check_tab(key: str, said: str, jobs: int, sampled_from: int) -> None:
    """Check one; of a sample nobody knows what is in it."""
    if sampled_from < MAX_SAMPLED:
        more = f"{MAX_COUNTED:,}+ more than {MAX_COUNTED:,}"
        assert (key, said) == (key, more if jobs > MAX_COUNTED else f"{jobs:,}")
        return
    found = _number(said)
    assert 0 < found <= min(jobs, MAX_COUNTED), key
    words = "more than" if found == MAX_COUNTED else "at least"
    assert (key, said) == (key, f"{found:,}+ {words} {found:,}")


def _number(said: str) -> int:
    return int(said.partition("+")[0].replace(",", ""))
