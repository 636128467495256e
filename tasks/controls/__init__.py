"""Controls: what a model has to beat before its numbers mean anything.

| control | of | what it says of a row |
|---|---|---|
| `majority` | classes | the classes' shares in the training split (ROC-AUC is 0.5 so, AP the share of positives) |
| `mean` | numbers | each label's mean in the training split |
| `chance` | pairs, triples | the same of every pair |
| `features` | nodes, graphs, pairs | what a linear model says that saw the rows' own features only |
| `boosted` | rows at moments | what gradient boosting says that saw the rows and what was one key away at the moment |
| `last_value`, `own_mean` | computed targets | the same figure of the time before |
| `popular`, `own_past`, ... | recommendations | simple rules |
| `degree`, `common_neighbors`, `adamic_adar` | pairs | the ends' neighbours in the training graph |
| `edge_bank` | pairs that are events | whether it was an edge in training |
| `frequency`, `association` | triples | how often the relation has the entity; what entities have that are alike |

Each metric has the best that a control allows: MAE the median, F1 of label columns yes to all where that is better in
the training split, Hits@K and MRR what a random order gives on average. Kinds of tasks (`tasks.kinds`) choose theirs.
"""
