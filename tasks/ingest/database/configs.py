"""Options of the data set `database`: tables, their keys and times, and what is predicted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from configs.base import ComponentConfig
from configs.matching import did_you_mean
from configs.registry import DATASETS
from configs.values.versioned_tables import NO_VERSIONS, as_of, open_references
from tasks.ingest.database.predicted.configs import (
    Labels,
    NamedTargetConfig,
    PredictConfig,
    TargetConfig,
    columns_of,
)
from tasks.ingest.database.predicted.link_paths import link_path
from tasks.ingest.database.table_configs import PLAIN_NAME, DatabaseTableConfig, filled_from
from tasks.storage.file_names import file_name, joined_name

# Transforms that count edges of all times, those behind a seed's moment too.
_OF_THE_GRAPH = frozenset({"degree", "edge_mean", "hops", "embedding", "served_embedding"})


@DATASETS.options("database", "database.dataset")
class DatabaseConfig(ComponentConfig):
    """A database: tables with keys, foreign keys and times, and what of an entity is predicted at which moments."""

    task: ClassVar[str] = "node"
    preprocess_defaults: ClassVar[dict[str, Any]] = {"deduplicate": False}  # edges of one pair at two times are two

    title: str = Field(default="database", pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]*$", max_length=100)
    """Name of the data set, for people."""
    text_ids: bool = False
    """Take all keys as texts, also where they look like numbers: `007` and `7` are then two rows."""
    max_categories: int = Field(default=1000, ge=2, le=1_000_000)
    """Texts of more different values are no categories by themselves; a column that `columns` calls a category may have
    ten times as many."""
    tables: dict[str, DatabaseTableConfig]
    """The tables by name; a name is that of the node type, or of the relation where rows are edges."""
    predict: PredictConfig
    """What is predicted."""

    @field_validator("tables", mode="before")
    @classmethod
    def _filled(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
            return value
        return {name: filled_from(one, str(name), value) for name, one in value.items()}

    @model_validator(mode="after")
    def _consistent(self) -> DatabaseConfig:
        if not self.tables:
            raise ValueError("tables: at least one table is needed")
        for name, table in self.tables.items():
            if not re.fullmatch(PLAIN_NAME, name):
                raise ValueError(f"tables: {name!r} is no plain name; use letters, digits, _ and -")
            table.check(name)
        for name, table in self.tables.items():
            for column, target in table.foreign.items():
                where = f"tables.{name}.foreign.{column}"
                target_table = self._known(target, where)
                if target_table.is_link:
                    raise ValueError(f"{where}: rows of {target} are edges; give it a key, or link: false")
                if target_table.key is None:
                    raise ValueError(
                        f"{where}: {target} has no key that {column} could hold; name its column: key: ..."
                    )
        self._check_predict()
        reached = connected_tables({name: table.foreign for name, table in self.tables.items()}, self.predict.table)
        for name, table in self.tables.items():
            if name not in reached:
                leads_to = f"its foreign keys lead to {_listed(table.foreign.values())}"
                raise ValueError(
                    f"tables.{name}: nothing connects it to {self.predict.table}, which is predicted: "
                    f"{leads_to if table.foreign else 'it has no foreign key, and none leads to it'}; name the foreign "
                    "keys (foreign: {COLUMN: TABLE}), or leave the table out"
                )
        return self

    def _known(self, name: str, where: str) -> DatabaseTableConfig:
        if name not in self.tables:
            near = did_you_mean(name, self.tables)
            raise ValueError(f"{where}: there is no table {name!r}{near}; tables: {', '.join(self.tables)}")
        return self.tables[name]

    def _check_predict(self) -> None:
        predict = self.predict
        entity = self._known(predict.table, "predict.table")
        if predict.label is not None:
            self._check_own_label(entity, predict.label)
        elif entity.key is None:
            raise ValueError(f"predict.table: {predict.table} has no key, and its rows have no names; give it one")
        elif predict.name in self.tables:
            raise ValueError(f"predict.name: {predict.name} is a table too; call what is predicted otherwise")
        if predict.target is not None and predict.target.is_ranked:
            link_path(predict, self.tables)
        else:
            for name, target in predict.computed.items():
                self.key_of_target(name, target)
        if predict.active is not None:
            self.key_to_entity(predict.active.any, "predict.active", None)

    def _check_own_label(self, table: DatabaseTableConfig, label: Labels) -> None:
        """Refuse a label that is something else too, and rows that must be edges."""
        predict = self.predict
        if table.link:
            raise ValueError(f"predict.table: rows of {predict.table} are predicted, so they are nodes; leave link out")
        if table.on_missing_time == "always":
            raise ValueError(
                f"tables.{predict.table}.on_missing_time: always lets rows see what is later than they are, and they "
                "are predicted; take drop"
            )
        taken = {table.key: "the key", table.time: "the time"} | dict.fromkeys(table.foreign, "a foreign key")
        taken |= dict.fromkeys(table.columns, "in columns")
        for column in columns_of(label):
            if column in taken:
                raise ValueError(
                    f"predict.label: column {column!r} of {predict.table} is {taken[column]} too; a label is nothing "
                    "else"
                )

    def key_of_target(self, name: str, target: TargetConfig) -> str:
        """Return the foreign key by which a target's rows name the entities. Raises ValueError."""
        if isinstance(target, NamedTargetConfig):
            return self.key_to_entity(target.table, f"predict.targets.{name}", target.via)
        return self.key_to_entity(target.table, "predict.target", self.predict.via)

    def key_to_entity(self, name: str, where: str, via: str | None) -> str:
        """Return the foreign key by which a timed table names the entities. Raises ValueError."""
        table, entity = self._known(name, where), self.predict.table
        columns = [column for column, target in table.foreign.items() if target == entity]
        if table.time is None:
            raise ValueError(
                f"{where}: {name} has no time, and which of its rows are behind a moment is not known; name the column "
                "(time: ...), or give labels that you compute yourself (predict.labels)"
            )
        if not columns:
            raise ValueError(f"{where}: {name} has no foreign key to {entity}; its own are {_listed(table.foreign)}")
        option = where if where.startswith("predict.targets.") else "predict"
        if via is not None and via not in columns:
            raise ValueError(f"{option}.via: {name} has no foreign key {via!r} to {entity}{did_you_mean(via, columns)}")
        if via is None and len(columns) > 1 and where.startswith("predict.target"):
            raise ValueError(f"{where}: {name} names {entity} by {_listed(columns)}; say which counts: {option}.via")
        return via or columns[0]

    def check_recipe(self, recipe: Any) -> None:
        """Refuse options that mix times, or count what is behind a moment. Raises ValueError."""
        check_moments_are_kept(self.name, recipe)
        check_fanouts(self.tables, self.predict.name, recipe)
        if recipe.snapshot.as_of is not None and recipe.snapshot.warm_start:
            raise ValueError("snapshot.warm_start is for snapshots by times of nodes and edges; leave it out")

    def reads_versions(self, by: str) -> bool:
        """Whether a snapshot is the tables as they were: always, since times say what a row sees. Raises ValueError."""
        if by == "times":
            raise ValueError(f"snapshot.by=times: rows of {self.name} have moments of their own; leave it out")
        return True

    def source_files(self) -> list[str]:
        """Return the files of all tables as the recipe names them."""
        labels = self.predict.labels
        sections = [*self.tables.values(), *([] if labels is None else [labels])]
        return [file for section in sections for file in section.files]

    def with_versions(self, moment: str) -> DatabaseConfig:
        """Return the options with each table of which no version is named as of a moment. Raises ValueError."""
        labels = self.predict.labels
        if not open_references(self.source_files()):
            raise ValueError(
                f"snapshot.as_of: {self.name} has moments of its own (dataset.predict.at), and {NO_VERSIONS}"
            )
        tables = {
            name: table.model_copy(update={"files": as_of(table.files, moment)}) for name, table in self.tables.items()
        }
        predict = self.predict
        if labels is not None:
            update = {"labels": labels.model_copy(update={"files": as_of(labels.files, moment)})}
            predict = predict.model_copy(update=update)
        return self.model_copy(update={"tables": tables, "predict": predict})


def connected_tables(foreign: Mapping[str, Mapping[str, str]], start: str) -> set[str]:
    """Return the tables that foreign keys, each a column to the table that it names, connect to one."""
    reached: set[str] = set()
    more = {start}
    while more > reached:
        reached = more
        ends = [{name, *keys.values()} for name, keys in foreign.items()]
        more = reached.union(*(one for one in ends if one & reached))
    return reached


def check_moments_are_kept(name: str, recipe: Any) -> None:
    """Refuse options that mix times, or count what is behind a moment. Raises ValueError."""
    if recipe.preprocess.deduplicate:
        raise ValueError(
            f"preprocess.deduplicate merges edges of different relations and times, and {name} has both; leave it out"
        )
    for transform in recipe.preprocess.transforms:
        if transform.name in _OF_THE_GRAPH:
            raise ValueError(
                f"preprocess.transforms: {transform.name} counts edges of all times, and a row of {name} must see only "
                "those before its moment; leave it out"
            )


def check_fanouts(tables: Mapping[str, DatabaseTableConfig], predicted: str, recipe: Any) -> None:
    """Refuse fan-outs of relations that no table makes. Raises ValueError.

    `predicted`: name of the node type of what is predicted, whose relations carry no messages and may be named.
    """
    names = relation_names(tables, symmetrize=recipe.preprocess.symmetrize)
    for option in ("fanout", "eval_fanout"):
        given = getattr(getattr(recipe.train, "loader", None), option, None)
        for name in given if isinstance(given, Mapping) else ():
            if name != "default" and name not in names and predicted not in name.split("__"):
                raise ValueError(
                    f"train.loader.{option}.{name}: the tables make no such relation{did_you_mean(name, names)}; they "
                    f"make {', '.join(names)}, and `default` stands for all others"
                )


def relation_names(tables: Mapping[str, DatabaseTableConfig], *, symmetrize: bool) -> list[str]:
    """Return the relations of all tables, with reverse ones or not; of a link table of its rows as edges and nodes."""
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


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"
