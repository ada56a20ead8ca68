"""Finding out where jobs are, and what else is due now and then."""
