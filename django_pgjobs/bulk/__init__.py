"""Changes of many jobs at once, by a person: which jobs, what is done to them, and doing it.

`selection.Selection` says which, `actions.ACTIONS` what; a `BulkChange` is one of them on its way.
A small one is done while the person waits (`changes.run_change`), a large one by a background job
(`job.enqueue_change`).
"""
