"""The choice of a claim, against a reference that says the same more slowly and more plainly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

import pytest

from django_pgjobs.choosing import Candidate, Head, Rate, Rooms, choose

QUEUES = ("default", "mail", "slow")


def make_heads(dice: random.Random) -> list[Head]:
    """Return lanes with and without keys, some of which share keys, queues and rate limits."""
    ids = iter(dice.sample(range(1_000), 1_000))
    rooms = {queue: dice.choice([None, None, 0, 1, 3]) for queue in QUEUES}
    running = {f"shop:{number}": dice.randint(0, 2) for number in range(3)}
    limits = {key: dice.choice([None, None, 1, 4]) for key in running}
    tokens = {f"api:{number}": dice.choice([0.0, 1.5, 3.0, 9.0]) for number in range(3)}
    heads = []
    for number in range(dice.randint(0, 8)):
        count = dice.randint(1, 6)
        key = dice.choice([None, *running])
        queue = dice.choice(QUEUES)
        rates = dice.sample(sorted(tokens), dice.choice([0, 0, 1, 2]))
        if key is None and not rates:
            rates = ["api:0"]
        heads.append(
            Head(
                backend="default",
                queue_name=queue,
                rank=dice.choice([-5, 0, 0]),
                lane=f"lane:{number}",
                concurrency_key=key,
                weight=dice.choice([1, 1, 2, 3]),
                max_running=limits[key] if key else None,
                running=running[key] if key else 0,
                ids=sorted(next(ids) for _ in range(count)),
                limits=[dice.choice([None, 1, 3, 9]) for _ in range(count)],
                costs=[dice.choice([1, 1, 2]) for _ in range(count)],
                queue_room=rooms[queue],
                rates=[Rate(rate, tokens[rate]) for rate in rates],
            )
        )
    for queue in dice.sample(QUEUES, dice.randint(0, 2)):
        heads.append(
            Head(
                backend="default",
                queue_name=queue,
                rank=dice.choice([-5, 0, 5]),
                ids=sorted(next(ids) for _ in range(dice.randint(1, 6))),
                queue_room=rooms[queue],
            )
        )
    return heads


def in_order(heads: Sequence[Head], wanted: int) -> list[Candidate]:
    """Return the jobs with keys of one rank in the order in which they have their turn."""
    weights = sum(head.weight for head in heads)
    turns = [
        (place // head.weight, number, place, Candidate(head, place))
        for number, head in enumerate(heads)
        for place in range(min(len(head.ids), ceil(wanted * head.weight / weights)))
    ]
    return [job for *_, job in sorted(turns, key=lambda turn: turn[:3])]


def may_start(job: Candidate, chosen: list[Candidate], slots: Mapping[str, int]) -> bool:
    """May the job start beside those that were chosen?"""
    head = job.head
    in_queue = sum(other.head.queue_name == head.queue_name for other in chosen)
    rooms = [head.queue_room, slots.get(head.queue_name)]
    if any(room is not None and in_queue >= room for room in rooms):
        return False
    if head.concurrency_key is None:
        return True
    of_key = sum(other.head.concurrency_key == head.concurrency_key for other in chosen)
    most = head.max_running or head.limits[job.place] or 1
    return head.running + of_key < most


def has_tokens(job: Candidate, chosen: list[Candidate], spent_up: set[str]) -> bool:
    """Is there enough of each rate limit? One that was short once gives nothing more."""
    short = set()
    for rate in job.head.rates:
        taken = sum(
            other.cost for other in chosen for used in other.head.rates if used.key == rate.key
        )
        if rate.key in spent_up or rate.tokens - taken < job.cost:
            short.add(rate.key)
    spent_up |= short
    return not short


def plainly(heads: Sequence[Head], wanted: int, slots: Mapping[str, int]) -> list[int]:
    """Choose by looking at everything again for each job."""
    chosen: list[Candidate] = []
    spent_up: set[str] = set()
    for rank in sorted({head.rank for head in heads}):
        of_rank = [head for head in heads if head.rank == rank]
        keyed = in_order([head for head in of_rank if head.lane], wanted)
        plain = [
            Candidate(head, place)
            for head in of_rank
            if not head.lane
            for place in range(len(head.ids))
        ]
        plain.sort(key=lambda job: job.id)
        sources = [keyed, plain]
        while any(sources) and len(chosen) < wanted:
            source = sources.pop(0)
            sources.append(source)
            while source:
                job = source.pop(0)
                if may_start(job, chosen, slots) and has_tokens(job, chosen, spent_up):
                    chosen.append(job)
                    break
    return [job.id for job in chosen]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_chosen_is_what_the_reference_chooses(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(50):
        heads = make_heads(dice)
        wanted = dice.choice([1, 2, 5, 20])
        slots = dice.choice([{}, {}, {"default": 1}, {"mail": 0, "slow": 2}])
        found = choose(heads, wanted=wanted, slots=slots, rooms=Rooms(wanted, wanted))
        assert [job.id for job in found] == plainly(heads, wanted, slots)


def lane(key: str, *ids: int, **columns: object) -> Head:
    """Return a lane of one key whose jobs may all run."""
    given = {
        "limits": [99] * len(ids),
        "costs": [1] * len(ids),
        "rank": 0,
        "queue_name": "default",
    } | columns
    return Head(backend="default", lane=f"{key}\n", concurrency_key=key, ids=ids, **given)  # type: ignore[arg-type]


def chosen_of(heads: Sequence[Head], wanted: int) -> list[int]:
    found = choose(heads, wanted=wanted, slots={}, rooms=Rooms(wanted, wanted))
    return [job.id for job in found]


def test_lanes_take_turns_by_their_weights() -> None:
    heavy, light = lane("heavy", 1, 2, 3, 4, weight=2), lane("light", 5, 6, 7)
    assert chosen_of([heavy, light], 6) == [1, 2, 5, 3, 4, 6]


def test_a_key_with_several_lanes_has_one_limit() -> None:
    heads = [
        lane("shop", 1, 2, running=1, max_running=3),
        lane("shop", 3, running=1, max_running=3),
    ]
    assert chosen_of(heads, 9) == [1, 3]


def test_a_job_without_tokens_is_not_overtaken_by_a_cheaper_one() -> None:
    rates = [Rate("api", 3)]
    dear = lane("dear", 1, 2, costs=[2, 2], rates=rates)
    cheap = lane("cheap", 3, rates=rates, rank=5)
    assert chosen_of([dear, cheap], 9) == [1]


def test_jobs_without_keys_are_chosen_one_for_one_with_the_others() -> None:
    plain = Head(backend="default", queue_name="mail", rank=0, ids=[1, 2, 3])
    assert Counter(chosen_of([lane("shop", 7, 8, 9), plain], 4)) == Counter([7, 1, 8, 2])


def test_each_kind_of_jobs_has_room_of_its_own() -> None:
    threads = lane("a", 1, 2, 3), Head(backend="default", queue_name="mail", rank=0, ids=[4, 5])
    loop = [
        head._replace(ids=[10 * number for number in head.ids], is_async=True) for head in threads
    ]
    found = choose([*threads, *loop], wanted=9, slots={}, rooms=Rooms(2, 3))
    assert Counter(job.head.is_async for job in found) == {False: 2, True: 3}
    assert choose(threads, wanted=9, slots={}, rooms=Rooms(0, 9)) == []


def test_lanes_of_one_kind_leave_those_of_the_other_their_share() -> None:
    """A share is one of the room of the kind."""
    heads = [lane("a", *range(1, 9)), lane("b", *range(11, 19), is_async=True)]
    found = choose(heads, wanted=6, slots={}, rooms=Rooms(4, 2))
    assert [job.id for job in found] == [1, 11, 2, 12, 3, 4]


def test_the_best_of_both_kinds_are_chosen_where_there_is_a_limit_for_both() -> None:
    low, high = lane("a", 1, 2, rank=5), lane("b", 3, 4, is_async=True)
    assert chosen_of([low, high], 3) == [3, 4, 1]


def test_jobs_of_the_other_kind_cost_those_without_keys_no_turn() -> None:
    """Each kind has room of its own: there those with and without keys are taken one for one."""
    old = Head(backend="default", queue_name="mail", rank=0, ids=[1, 2, 3, 4], is_async=True)
    plain = Head(backend="default", queue_name="mail", rank=0, ids=[5, 6, 7])
    keyed = lane("shop", 8, 9, 10, 11)
    found = choose([keyed, old, plain], wanted=8, slots={}, rooms=Rooms(4, 4))
    of_threads = [job.id for job in found if not job.head.is_async]
    assert sorted(of_threads) == [5, 6, 8, 9]
