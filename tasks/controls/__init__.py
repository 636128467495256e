"""Controls: what a model has to beat before its numbers mean anything. Those of links see edges, and so
do `boosted_nearby` and `boosted_vectors`.

| control | task | what it says of a row |
|---|---|---|
| `majority` | classes | the classes' shares in the training split (ROC-AUC is 0.5 so, AP the share of positives) |
| `mean` | regression | each label's mean in the training split |
| `chance` | links | the same of every pair |
| `features` | all | what a linear model says that saw the rows' own features only |
| `prepared` | nodes, links | the same of the features after preprocess, where vectors of a model are among them |
| `boosted` | rows at moments | what gradient boosting says that saw the entities' own rows only |
| `boosted_nearby` | rows at moments | the same with counts, ages and means by relation, of what was before the moment |
| `boosted_vectors` | rows at moments | the same with FastRP vectors of the entities, of the graph before the moment |
| `degree`, `common_neighbors`, `adamic_adar` | links | the ends' neighbours in the training graph |
| `dot`, `cosine` | links | the vectors of a model that is these, where its head scores pairs otherwise |

Each metric has the best that a control allows: MAE the median, F1 of label columns yes to all where that is better in
the training split, Hits@K and MRR what a random order gives on average.

Where rows are predicted at moments (`moments.py`, `entities.py`, `boosting.py`), `features` are those of the entity and
its age.

The linear models are in `rows.py` and `pairs.py`, neighbours in `neighborhoods.py`, vectors in
`vectors.py`.
"""
