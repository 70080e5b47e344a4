# SPDX-License-Identifier: Apache-2.0
"""CIC-IDS2017 and CIC-DDoS2019: flows as CICFlowMeter writes them, with labels.

I. Sharafaldin, A. H. Lashkari, A. A. Ghorbani, "Toward Generating a New Intrusion Detection Dataset and
Intrusion Traffic Characterization", ICISSP 2018 (the folder GeneratedLabelledFlows or TrafficLabelling; the
files of MachineLearningCVE have no addresses); I. Sharafaldin et al., "Developing Realistic Distributed
Denial of Service (DDoS) Attack Dataset and Taxonomy", ICCST 2019 (the folders CSV-01-12 and CSV-03-11).

Known of these files and handled: blanks before column names, the column `Fwd Header Length` twice, Infinity
and NaN in rates (which are not read), durations below 0, labels in cp1252, lines of commas alone at the end,
header lines in the middle, times without seconds, days before months, and in CIC-IDS2017 hours of a 12-hour
clock without AM or PM: the testbed worked from 8 to 17 o'clock, so hours 1 to 5 are in the afternoon. Times
are of Fredericton, New Brunswick. Protocol 0 stands for all protocols but TCP and UDP.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from wirewise.datasets.flow_list import COLUMNS, Skipped
from wirewise.datasets.published.reader import (
    NS,
    READERS,
    LabelOptions,
    Reader,
    header_of,
    place_of,
    rows_of,
    slug,
)
from wirewise.errors import InputError

FREDERICTON = "America/Moncton"
_NAMES = {
    "src": ("source ip", "src ip"),
    "sport": ("source port", "src port"),
    "dst": ("destination ip", "dst ip"),
    "dport": ("destination port", "dst port"),
    "protocol": ("protocol",),
    "time": ("timestamp",),
    "duration": ("flow duration",),
    "label": ("label",),
}
_DAY_FIRST = r"^(?<d>\d{1,2})[/-](?<mo>\d{1,2})[/-](?<y>\d{4})\s+"
_YEAR_FIRST = r"^(?<y>\d{4})-(?<mo>\d{1,2})-(?<d>\d{1,2})[T ]+"
_CLOCK = r"(?<h>\d{1,2}):(?<mi>\d{2})(?::(?<s>\d{2})(?:[.](?<f>\d{1,9}))?)?\s*(?<half>[AaPp][Mm])?$"
_LEAST_NS = 1_000_000


def _read(
    path: Path, options: LabelOptions, skipped: Skipped, *, twelve_hours: bool
) -> Iterator[pl.DataFrame]:
    header = header_of(path)
    names = dict(_NAMES)
    if options.label_column:
        names["label"] = (" ".join(options.label_column.split()).lower(),)
    try:
        columns = {name: place_of(path, header, known, name) for name, known in names.items()}
    except InputError as error:
        if any("destination port" in name.lower() for name in header) and len(header) < 82:
            raise InputError(
                str(path), "has no addresses or times, so its labels cannot be joined to packets",
                "use the files of GeneratedLabelledFlows (TrafficLabelling), not those of MachineLearningCVE",
            ) from error  # fmt: skip
        raise
    zone = options.time_zone or FREDERICTON
    for _, frame in rows_of(path, columns, width=len(header), header=True, skipped=skipped):
        yield _flows(frame, zone, twelve_hours)


def _flows(frame: pl.DataFrame, zone: str, twelve_hours: bool) -> pl.DataFrame:
    names = ("y", "mo", "d", "h", "mi", "s", "f", "half")
    times = frame.select(
        pl.col("time").str.extract_groups(_DAY_FIRST + _CLOCK).alias("day"),
        pl.col("time").str.extract_groups(_YEAR_FIRST + _CLOCK).alias("year"),
    ).select(
        pl.coalesce(pl.col(form).struct.field(name) for form in ("day", "year")).alias(name) for name in names
    )
    frame = frame.hstack(times)
    whole = ("y", "mo", "d", "h", "mi", "s")
    frame = frame.with_columns(
        pl.when(pl.col("f").is_not_null()).then(_LEAST_NS).when(pl.col("s").is_not_null()).then(NS)
        .otherwise(60 * NS).alias("resolution"),
        pl.col("s").fill_null("0"),
        pl.col("f").fill_null("").str.pad_end(9, "0").cast(pl.Int64, strict=False),
        pl.col("half").str.to_lowercase(),
    ).with_columns(pl.col(name).cast(pl.Int64, strict=False) for name in whole)  # fmt: skip
    hour = (
        pl.when(pl.col("half") == "pm").then(pl.col("h") % 12 + 12)
        .when(pl.col("half") == "am").then(pl.col("h") % 12)
    )  # fmt: skip
    if twelve_hours:
        hour = hour.when(pl.col("h").is_between(1, 5)).then(pl.col("h") + 12)
    frame = frame.with_columns(hour.otherwise(pl.col("h")).alias("h"))
    real = (
        pl.col("mo").is_between(1, 12) & pl.col("d").is_between(1, 31) & (pl.col("h") < 24)
        & (pl.col("mi") < 60) & (pl.col("s") < 60) & pl.col("y").is_between(1970, 2100)
    )  # fmt: skip
    text = pl.format("{}-{}-{} {}:{}:{}", *(pl.col(name).cast(pl.String).str.zfill(2) for name in whole))
    local = pl.when(real).then(text).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ns", strict=False)
    start = _utc_ns(local, zone) + pl.col("f")
    micros = pl.col("duration").cast(pl.Float64, strict=False)
    lasted = pl.when(micros.is_finite() & micros.is_between(0, 1e13)).then(micros).otherwise(0.0)
    return frame.select(
        start.alias("from_ns"),
        (start + pl.col("resolution") + (lasted * 1000).cast(pl.Int64)).alias("until_ns"),
        "src",
        pl.col("sport").cast(pl.Int64, strict=False),
        "dst",
        pl.col("dport").cast(pl.Int64, strict=False),
        pl.col("protocol").cast(pl.Int64, strict=False),
        slug().alias("label"),
    ).select(pl.col(name).cast(kind) for name, kind in COLUMNS.items())


def _utc_ns(local: pl.Expr, zone: str) -> pl.Expr:
    """Ns since 1970 of a local time; an hour that occurs twice is taken the first time."""
    if (seconds := _offset(zone)) is not None:
        return local.dt.timestamp("ns") - seconds * NS
    try:
        return local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").dt.timestamp("ns")
    except pl.exceptions.PolarsError as error:
        raise InputError(f"time zone {zone!r}", "is not known", "write -03:00 or America/Halifax") from error


def _offset(zone: str) -> int | None:
    sign, rest = zone[:1], zone[1:]
    if sign not in ("+", "-"):
        return 0 if zone.upper() in ("UTC", "Z") else None
    hours, _, minutes = rest.partition(":")
    if not hours.isdigit() or (minutes and not minutes.isdigit()) or int(hours) > 15:
        raise InputError(f"time zone {zone!r}", "is none", "write it as -03:00 or America/Halifax")
    return (int(hours) * 3600 + int(minutes or 0) * 60) * (1 if sign == "+" else -1)


READERS.add(
    Reader(
        "cic-ids2017", "CIC-IDS2017: captures and the CSVs of GeneratedLabelledFlows",
        partial(_read, twelve_hours=True), (".csv",), "https://www.unb.ca/cic/datasets/ids-2017.html",
    )
)  # fmt: skip
READERS.add(
    Reader(
        "cic-ddos2019", "CIC-DDoS2019, and other CSVs of CICFlowMeter with a 24-hour clock",
        partial(_read, twelve_hours=False), (".csv",), "https://www.unb.ca/cic/datasets/ddos-2019.html",
    )
)  # fmt: skip
