"""Controls: what a model has to beat before its numbers mean anything (docs/pages/stages.md lists them).

Each metric has the best that a control allows: MAE the median, F1 of label columns yes to all where that is better in
the training split, Hits@K and MRR what a random order gives on average. Kinds of tasks (`tasks.kinds`) choose theirs.
"""
