"""A company's tables with keys, foreign keys and times: a typed graph, and what is to be predicted at which moment."""
