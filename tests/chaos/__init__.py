"""Ten minutes of everything at once, and a checker that finds what went wrong: by hand.

    python -m tests.chaos --minutes 10 --seed 7

Clients enqueue every kind of job (`actions`), a person changes them (`operator`), somebody
writes odd rows (`dirt`), locks, kills, cuts and fails over (`faults`), all on servers of its own
(`world`). Workers over HTTP (`elsewhere`) work beside ours for web servers that are killed, too
(`site`). Two records are kept beside the table of jobs: a file to which clients and tasks append
what they did (`journal`), and every change of a job with the instant of its commit, which a trigger
writes (`ledger`). When the time is over the faults stop, the jobs have to come to an end, and
`checks` reads both records. It finds what is lost, stuck, run too often or against a limit,
cancelled in vain, or said in a log without a reason.

Faults are chosen by the seed; what they meet is not the same twice.
"""
