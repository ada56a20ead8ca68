"""Traces: an attempt is a span that leads back to the enqueue, for OpenTelemetry and for Sentry.

Who enqueues leaves the headers of its trace in the job's metadata (`headers`), and every attempt
reads them there. Off, which is the default, all of it is a look at the settings; a tracer that
raises costs a line in the log and no job.
"""
