"""How similar queries are to the rows of tables, and the gradients."""
