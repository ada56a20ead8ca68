"""What a project declares: tasks, their options, keys and retries, and finding them again."""
