"""The worker runtime. Private: import nothing from here.

`WorkerProcess` (`process/worker_process.py`) is one process: it starts the roles, waits for
signals, and stops them. A role is one loop in one thread, with the contract of `role.Role`:

    pump       claims jobs and writes outcomes, both in one round trip (`claiming/`)
    upkeep     finds out where jobs are, listens, and does what is due from time to time (`upkeep/`)
    slots      threads that run jobs, and an event loop for async ones (`running/`)
    lease      renews the worker's lease; rescues the jobs of others when theirs runs out
    scheduler  enqueues the occurrences of schedules that are due
    pruner     deletes what is past its retention, in the oldest worker
    recorder   writes statistics once a minute
    watchdog   ends attempts that take too long, and connections that do not answer
    announcer  sends task_finished when an outcome is stored
    health     tells over HTTP, and by a file, whether the worker is live and ready
    vitals     ends a process of which a part stands still
"""
