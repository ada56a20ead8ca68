"""Traces: an attempt is a span that leads back to the enqueue, for OpenTelemetry and for Sentry.

An enqueue leaves the headers of its trace in the job's metadata (`headers`), and every attempt
reads them there. If it is off, the default, it costs a look at the settings; a tracer that raises
costs a line in the log and no job.
"""
