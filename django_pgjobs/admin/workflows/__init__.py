"""The pages of workflows: the list of them, a batch with what is below it, and their ends."""
