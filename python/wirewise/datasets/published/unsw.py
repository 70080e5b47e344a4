# SPDX-License-Identifier: Apache-2.0
"""UNSW-NB15: the four CSVs of 49 columns, UNSW-NB15_1.csv to UNSW-NB15_4.csv, which have no header.

N. Moustafa, J. Slay, "UNSW-NB15: a comprehensive data set for network intrusion detection systems", MilCIS
2015; the columns are those of NUSW-NB15_features.csv. Known of these files and handled: a byte-order mark,
ports in hexadecimal ("0x000b") or "-", names of attacks with blanks around them and in two spellings
(Backdoor, Backdoors), protocols by name, flows of ARP (which are no IP, hence skipped and counted). Times are
seconds since 1970, the last one inclusive.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from wirewise.abi import Status
from wirewise.datasets.flow_list import COLUMNS, Skipped
from wirewise.datasets.published.reader import (
    BENIGN,
    NS,
    READERS,
    LabelOptions,
    Reader,
    header_of,
    protocol,
    rows_of,
    slug,
)
from wirewise.datasets.table import Table
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.files import open_file

WIDTH = 49
_COLUMNS = {
    "src": 0, "sport": 1, "dst": 2, "dport": 3, "protocol": 4, "from": 28, "until": 29,
    "attack": 47, "label": 48,
}  # fmt: skip
_SETS = ("dur", "proto", "spkts", "sbytes", "sttl", "sinpkt", "smean", "attack_cat", "label")
_SPELLINGS = {"backdoors": "backdoor", "normal": BENIGN}


def attack_name(attack: str = "attack", label: str = "label") -> pl.Expr:
    """The class of a row: of the attack; `benign` or `attack` where only the 0 or 1 is there."""
    name = slug(attack).replace(_SPELLINGS)
    none = name.is_null() | (name == "")
    return (
        pl.when(~none).then(name)
        .when(pl.col(label) == "1").then(pl.lit("attack"))
        .when(pl.col(label) == "0").then(pl.lit(BENIGN))
    )  # fmt: skip


def _port(column: str) -> pl.Expr:
    text = pl.col(column).str.to_lowercase()
    hexadecimal = text.str.starts_with("0x")
    digits = pl.when(hexadecimal).then(text.str.strip_prefix("0x")).otherwise(pl.lit(None, pl.String))
    number = pl.coalesce(digits.str.to_integer(base=16, strict=False), text.cast(pl.Int64, strict=False))
    return pl.when(text.is_in(["-", ""]) | text.is_null()).then(0).otherwise(number)


def _read(path: Path, options: LabelOptions, skipped: Skipped) -> Iterator[pl.DataFrame]:
    first = [field.strip().lower() for field in header_of(path)]
    if "spkts" in first and "srcip" not in first:
        raise InputError(
            str(path), "is a training or testing set, without addresses and times to join to packets",
            "make a table of it with `wirewise datasets unsw-nb15-sets`",
        )  # fmt: skip
    if len(first) != WIDTH:
        raise InputError(
            str(path), f"has {len(first)} columns, not the {WIDTH} of UNSW-NB15_1.csv to UNSW-NB15_4.csv",
            "give these files alone, not the lists of features and events beside them",
        )  # fmt: skip
    if options.label_column:
        raise InputError("--label-column", "has no meaning for UNSW-NB15", "leave it out")
    header = first[0] == "srcip"
    for _, frame in rows_of(path, _COLUMNS, width=WIDTH, header=header, skipped=skipped):
        yield frame.select(
            (pl.col("from").cast(pl.Int64, strict=False) * NS).alias("from_ns"),
            ((pl.col("until").cast(pl.Int64, strict=False) + 1) * NS).alias("until_ns"),
            "src",
            _port("sport").alias("sport"),
            "dst",
            _port("dport").alias("dport"),
            protocol("protocol").alias("protocol"),
            attack_name().alias("label"),
        ).select(pl.col(name).cast(kind) for name, kind in COLUMNS.items())


READERS.add(
    Reader(
        "unsw-nb15", "UNSW-NB15: captures and the CSVs of 49 columns", _read, (".csv",),
        "https://research.unsw.edu.au/projects/unsw-nb15-dataset",
    )
)  # fmt: skip

NOT_COMPUTED = {
    "dbytes, dttl, dload, dpkts, dmean, dinpkt": "of the other direction, which an ingress hook does not see",
    "sload": "a quotient of sbytes and dur, which the model has",
    "tcprtt, synack, ackdat": "times between packets of both directions",
}


def read_set(path: Path) -> tuple[Table, list[str]]:
    """A training or testing set as a table of the preset `siracusano2022`, a row for each flow; and notes.

    The values are argus' totals at the flow's end, in the preset's units: microseconds, and 16 fractional
    bits for means. argus counts the bytes of Ethernet headers too. Every row is a flow of its own.
    """
    feature_set = FeatureSet.load("siracusano2022")
    try:
        with open_file(path, what="CSV") as file:  # by name Polars takes brackets for a pattern
            frame = pl.read_csv(file, infer_schema=False, encoding="utf8-lossy", truncate_ragged_lines=True)
    except (PolarsError, OSError) as error:
        raise InputError(str(path), f"is no CSV ({error})", "give UNSW_NB15_training-set.csv") from error
    frame = frame.rename({name: name.replace("\ufeff", "").strip().lower() for name in frame.columns})
    if missing := [name for name in _SETS if name not in frame.columns]:
        raise InputError(
            str(path), f"has no column {missing[0]!r}",
            "give UNSW_NB15_training-set.csv or UNSW_NB15_testing-set.csv",
        )  # fmt: skip
    numbers = {
        "duration": (1e6, "dur"), "sum_length": (1, "sbytes"), "ttl": (1, "sttl"), "count": (1, "spkts"),
        "mean_length": (65536, "smean"), "mean_iat": (1000 * 65536, "sinpkt"),
    }  # fmt: skip
    values = frame.with_row_index("row", 1).select(
        "row",
        attack_name("attack_cat").alias("label"),
        *(
            (pl.col(old).cast(pl.Float64, strict=False) * scale).alias(new)
            for new, (scale, old) in numbers.items()
        ),
    )
    whole = values.filter(
        pl.all_horizontal(pl.col(name).is_between(0, 2**62) for name in numbers)
        & pl.col("label").is_not_null()
    )
    notes = [f"{len(values) - len(whole):,} rows left out: a value is missing or no number"]
    if whole.is_empty():
        raise InputError(str(path), "has no row that can be used", "is the file whole?")
    rows = np.arange(len(whole))
    table = pl.DataFrame({"time_ns": np.zeros(len(whole), np.int64)}).with_columns(
        pl.lit(str(path)).alias("capture"),
        whole["row"].cast(pl.Int64).alias("packet"),
        pl.format("{} {}", pl.lit(path.name), pl.Series(rows)).alias("flow"),
        *(whole[name].round().cast(pl.Int64) for name in feature_set.feature_names),
        whole["label"],
        pl.lit(int(Status.CLASSIFIED), pl.Int32).alias("status"),
    )
    return Table(table, feature_set), notes if len(values) > len(whole) else []
