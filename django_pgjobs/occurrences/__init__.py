"""When a schedule is due: cron expressions, intervals, time zones. Pure, without a database."""
