"""The names of the relations that tables make, which `train.loader.fanout` may name, as the recipe alone tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from configs.matching import did_you_mean
from tasks.ingest.database.table_configs import DatabaseTableConfig
from tasks.storage.file_names import file_name, joined_name


def check_fanouts(tables: Mapping[str, DatabaseTableConfig], predicted: str, recipe: Any) -> None:
    """Refuse fan-outs of relations that no table makes.

    Args:
        tables: of the database.
        predicted: name of the node type of what is predicted, whose relations carry no messages and may be named.
        recipe: the whole one.

    Raises ValueError.
    """
    known = relation_names(tables, symmetrize=recipe.preprocess.symmetrize)
    for option in ("fanout", "eval_fanout"):
        given = getattr(getattr(recipe.train, "loader", None), option, None)
        for name in given if isinstance(given, Mapping) else ():
            if name != "default" and name not in known and predicted not in name.split("__"):
                raise ValueError(
                    f"train.loader.{option}.{name}: the tables make no such relation{did_you_mean(name, known)}; they "
                    f"make {', '.join(known)}, and `default` stands for all others"
                )


def relation_names(tables: Mapping[str, DatabaseTableConfig], *, symmetrize: bool) -> list[str]:
    """Return the relations of all tables; of a link table those of its rows as edges and as nodes.

    `symmetrize`: whether each has a reverse.
    """
    names: list[str] = []
    for table_name, table in tables.items():
        ends = [(table_name, file_name(column), target) for column, target in table.foreign.items()]
        if table.is_link:
            source, target = table.foreign.values()
            ends.insert(0, (source, file_name(table_name), target))
        for source, relation, target in ends:
            names.append(joined_name((source, relation, target)))
            if symmetrize:
                names.append(f"{target}__rev_{relation}__{source}")
    return names
