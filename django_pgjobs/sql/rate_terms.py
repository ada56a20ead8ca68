"""What statements say of rate limits: the terms of `terms.py` that are the rule of the limits."""

from __future__ import annotations

RATE_TERMS = {
    # Of the row of a rate limit: how many may come at once.
    "burst_in_force": "COALESCE({it}.burst, {it}.count)",
    # Of the key of a rate limit: SELECT the limit. That of the key itself goes first.
    "rate_limit": (
        "SELECT rate_limit.name, rate_limit.count, rate_limit.period,"
        " {rate_limit.burst_in_force} AS burst,"
        # As an interval: whole microseconds, rounded up, for the clock has no smaller ones.
        " make_interval(secs =>"
        " ceil(rate_limit.period * 1000000::double precision) / 1000000::double precision"
        ") AS period_in_force"
        " FROM pgjobs_rate_limit AS rate_limit"
        " WHERE rate_limit.name IN ({it}, split_part({it}, ':', 1))"
        " ORDER BY rate_limit.name = {it} DESC"
        " LIMIT 1"
    ),
    # Of a job: a rate limit that it waits for lets none go.
    "is_vain": (
        "EXISTS ("
        "SELECT FROM pg_catalog.unnest(string_to_array({it}.rate_limit_keys, E'\\n'))"
        " AS wanted (key)"
        " WHERE NOT EXISTS ("
        "SELECT FROM ({wanted.key.rate_limit}) AS rule"
        " WHERE ({it}.rate_cost > rule.burst) IS NOT TRUE))"
    ),
    # Of the key of a rate limit: SELECT its state. The limit keeps the planner from joining it with
    # all states.
    "rate_state": (
        "SELECT state.taken_at, state.taken_since"
        " FROM pgjobs_rate_state AS state WHERE state.key = {it} LIMIT 1"
    ),
    # Of the state of a rate limit: SELECT what it remembers, *instant* and how many tokens were
    # taken *since* then, those of the instant included.
    "taken": (
        "SELECT {entry.instant.in_calendar} AS instant,"
        " GREATEST(entry.since::bigint, 0) AS since"
        " FROM unnest({it}.taken_at, {it}.taken_since) AS entry (instant, since)"
    ),
    # Of the state of a rate limit, which may be missing, beside its *rule* and what is *wanted*
    # (its *cost*): from when on so many tokens are there; NULL if nothing is in the way. This is
    # the rule itself, in docs/rate-limits.md: a window that begins with what was taken before
    # holds no more than the count, and no more than the burst and what comes with time.
    "free_at": (
        "(SELECT max(LEAST(taken.instant + CASE"
        " WHEN taken.since + wanted.cost::bigint > rule.count THEN rule.period_in_force"
        " WHEN taken.since + wanted.cost::bigint <= rule.burst THEN '0'::interval"
        " ELSE make_interval(secs => ceil("
        "(taken.since + wanted.cost::bigint - rule.burst)::double precision"
        " * rule.period * 1000000::double precision / rule.count::double precision"
        ") / 1000000::double precision)"
        " END, '9999-12-30'))"
        " FROM ({{it}.taken}) AS taken)"
    ),
    # Of the same beside its *rule*: how many tokens there are now by the same rule; below zero: so
    # many turns were given ahead. NULL if there is no such limit.
    "tokens": (
        "CASE WHEN rule.count IS NOT NULL THEN LEAST(rule.burst, ("
        "SELECT min(CASE"
        " WHEN taken.instant > statement_timestamp() THEN -taken.since"
        " ELSE LEAST("
        "rule.count - taken.since,"
        " rule.burst - taken.since + floor("
        "date_part('epoch', statement_timestamp() - taken.instant)"
        " * rule.count::double precision / rule.period"
        ")::bigint)"
        " END)"
        " FROM ({{it}.taken}) AS taken"
        " WHERE taken.instant > statement_timestamp() - rule.period_in_force"
        ")) END"
    ),
    # Of the same: more there are not, by the oldest entry alone; NULL if it does not tell.
    "remaining_at_oldest": (
        "CASE WHEN array_lower({it}.taken_at, 1) = 1 AND array_lower({it}.taken_since, 1) = 1"
        " AND {it}.taken_at[1] > statement_timestamp() - rule.period_in_force"
        " THEN rule.count - GREATEST({it}.taken_since[1]::bigint, 0) END"
    ),
    # Of a turn (*instant*, *cost*) beside the *state* and the *rule* of its key: SELECT what the
    # state remembers then, and when all tokens are free again. What has left the window by then
    # is forgotten. Of a limit above a hundred the tokens of a hundredth of the period are one
    # entry with the instant of the last of them.
    "recorded": (
        "SELECT array_agg(entry.instant ORDER BY entry.instant) AS taken_at,"
        " array_agg(entry.since ORDER BY entry.instant) AS taken_since,"
        " {it}.instant + rule.period_in_force AS next_free"
        " FROM ("
        "SELECT max(each.instant) AS instant, LEAST(max(each.since), 2147483647)::integer AS since"
        " FROM ("
        "SELECT taken.instant, taken.since + {it}.cost::bigint AS since"
        " FROM ({state.taken}) AS taken"
        " WHERE taken.instant > {it}.instant - rule.period_in_force"
        " UNION ALL SELECT {it}.instant, {it}.cost::bigint"
        ") AS each"
        " GROUP BY date_bin("
        "CASE WHEN rule.count > 100"
        " THEN make_interval(secs => rule.period / 100::double precision)"
        " ELSE '1 us'::interval END,"
        " each.instant, 'epoch')"
        ") AS entry"
    ),
}
