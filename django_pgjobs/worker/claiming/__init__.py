"""Taking jobs from the table, and writing what became of them."""
