"""What is predicted of a database: of which rows, at which moments, with which labels or links."""
