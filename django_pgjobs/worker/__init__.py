"""The worker runtime. Private: import nothing from here.

`runner.Runner` is one process: it starts the roles, waits for signals, and stops them. Each
role is one loop in one thread with the contract of `role.Role`:

    pump       claims jobs and writes outcomes, both in one round trip (places, completer)
    upkeep     finds out where jobs are, listens, and does what is due now and then (duties)
    executor   threads that run jobs, and an event loop for async ones
    lease      renews the worker's lease; rescues the jobs of others when theirs runs out
    watchdog   ends attempts that take too long, and connections that do not answer
    announcer  sends task_finished when an outcome is stored
"""
