# SPDX-License-Identifier: Apache-2.0
"""What a reader of published labels is, and the parts that several share."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl
from polars.exceptions import PolarsError

from wirewise.datasets.flow_list import Skipped
from wirewise.errors import InputError, choose
from wirewise.files import files_below, open_file
from wirewise.registry import Registry

BENIGN = "benign"
NS = 1_000_000_000
_CHUNK = 4 << 20  # bytes of text at once
_MAX_LINE = 1 << 20


@dataclass(frozen=True)
class LabelOptions:
    """time_zone : of times without one, such as America/Halifax or -03:00; None is the data set's own.
    label_column : column (or field) that names the class; None is the format's own. alerts : a second file
    that says which flows are attacks, where the format has one.
    """

    time_zone: str | None = None
    label_column: str | None = None
    alerts: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Reader:
    """A format of labels.

    read : gives frames of `flow_list.COLUMNS`, in any order, null where a value cannot be read; adds the
    lines that are no rows to the skipped. Raises InputError for a file that is not of this format. suffixes :
    of the files meant where a folder is given. otherwise : label of packets of no flow ("": none).
    """

    name: str
    doc: str
    read: Callable[[Path, LabelOptions, Skipped], Iterator[pl.DataFrame]]
    suffixes: tuple[str, ...]
    source: str
    otherwise: str = ""


READERS: Registry[Reader] = Registry("data set", lambda reader: reader.name)


def find_label_files(given: Sequence[Path], reader: Reader) -> list[Path]:
    """The files meant by files and folders. Raises InputError for what does not exist or holds none."""
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = [file for file in files_below(path) if _plain(file).endswith(reader.suffixes)]
            if not inside:
                raise InputError(str(path), f"holds no file of {reader.name} ({', '.join(reader.suffixes)})")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise InputError(str(path), "does not exist", "give files of labels, or folders of them")
    return found


def _plain(path: Path) -> str:
    return path.name.lower().removesuffix(".gz")


def open_text(path: Path) -> BinaryIO:
    """A file as bytes, unpacked if its name ends in .gz."""
    file = open_file(path, what="file of labels")
    return cast(BinaryIO, gzip.open(file)) if path.suffix == ".gz" else file


def chunks_of_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Pieces of a file that end with a line, each with the number of its first line."""
    rest, line = b"", 1
    try:
        with open_text(path) as file:
            while data := file.read(_CHUNK):
                cut = data.rfind(b"\n") + 1
                if not cut and len(rest) + len(data) > _CHUNK + _MAX_LINE:
                    raise InputError(str(path), f"has a line longer than {_MAX_LINE:,} bytes: it is no text")
                piece, rest = (rest + data[:cut], data[cut:]) if cut else (b"", rest + data)
                if piece:
                    yield line, piece
                    line += piece.count(b"\n")
    except (OSError, EOFError) as error:
        raise InputError(str(path), f"cannot be read on: {error}", "copy the file again") from error
    if rest:
        yield line, rest


def header_of(path: Path) -> list[str]:
    """The fields of a CSV's first line, as they stand, without a byte-order mark."""
    with open_text(path) as file:
        line = file.readline(_MAX_LINE)
    text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return next(csv.reader([text]), [])


def place_of(path: Path, header: Sequence[str], names: Sequence[str], what: str) -> int:
    """Index of the first column with one of these names, blanks and case aside. Raises InputError."""
    known = [" ".join(name.split()).lower() for name in header]
    for name in names:
        if name in known:
            return known.index(name)
    raise InputError(
        str(path), f"has no column of the {what} ({' or '.join(repr(n) for n in names)})",
        f"its columns: {choose(names[0], [n for n in known if n][:90])}",
    )  # fmt: skip


def rows_of(
    path: Path,
    columns: dict[str, int],
    *,
    width: int,
    header: bool,
    skipped: Skipped,
    separator: str = ",",
    quoted: bool = True,
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Some columns of a CSV as text without blanks around it, a chunk at a time, each with its place.

    columns : name to index. width : of the file. header : the first line is one; the same line further down
    is no row, and neither is an empty line. Bytes that are not UTF-8 become U+FFFD.
    """
    first_line: bytes | None = None
    for line, piece in chunks_of_lines(path):
        place = f"{path.name}, from line {line:,}"
        data = piece.removeprefix(b"\xef\xbb\xbf") if line == 1 else piece
        if header and first_line is None:
            first_line, _, data = data.partition(b"\n")
        if not data.strip():
            continue
        try:
            frame = pl.read_csv(
                BytesIO(data),
                has_header=False,
                infer_schema=False,
                encoding="utf8-lossy",
                separator=separator,
                quote_char='"' if quoted else None,
                truncate_ragged_lines=True,
                new_columns=[f"c{index}" for index in range(width)],
                schema={f"c{index}": pl.String for index in range(width)},
            ).select(pl.col(f"c{index}").str.strip_chars().alias(name) for name, index in columns.items())
        except PolarsError as error:
            raise InputError(place, f"is no table ({error})", "is the file what it should be?") from error
        known = len(frame)
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null() | (pl.all() == "")))
        skipped.add("an empty line", known - len(frame), place)
        skipped.rows += known - len(frame)
        if first_line is not None:
            names = _fields(first_line, separator)
            repeated = pl.all_horizontal(
                pl.col(name).fill_null("") == names[index] for name, index in columns.items()
            )
            kept = frame.filter(~repeated)
            skipped.add("the header again", len(frame) - len(kept), place)
            skipped.rows += len(frame) - len(kept)
            frame = kept
        yield place, frame


def _fields(line: bytes, separator: str) -> list[str]:
    text = line.decode("utf-8", "replace").rstrip("\r")
    return [field.strip() for field in next(csv.reader([text], delimiter=separator), [])]


def slug(column: str = "label") -> pl.Expr:
    """Labels in one spelling: lower case, and a hyphen for all that is neither letter nor digit.

    So `Web Attack \x96 Brute Force` is the same in every encoding.
    """
    return pl.col(column).str.to_lowercase().str.replace_all(r"[^a-z0-9]+", "-").str.strip_chars("-")


def epoch_ns(column: str) -> pl.Expr:
    """Ns since 1970 from seconds with a decimal fraction, as text and exactly."""
    parts = pl.col(column).str.extract_groups(r"^(\d{1,10})(?:\.(\d{1,9})\d*)?$")
    fraction = parts.struct.field("2").fill_null("").str.pad_end(9, "0").cast(pl.Int64, strict=False)
    return parts.struct.field("1").cast(pl.Int64, strict=False) * NS + fraction


def moment_ns(column: str) -> pl.Expr:
    """Ns since 1970 from the times that sensors log, as text: seconds with a decimal fraction, whole
    milliseconds, or ISO 8601 (in UTC if it has no offset).

    A number of twelve or thirteen digits is milliseconds (as seconds it would be after the year 5100).
    """
    text = pl.col(column).str.strip_chars()
    millis = text.str.extract(r"^(\d{12,13})(?:\.0*)?$").cast(pl.Int64, strict=False) * 1_000_000
    iso = text.str.extract_groups(
        r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?\s*(?:(Z|[+-]\d\d):?(\d\d)?)?$"
    )
    part = iso.struct.field
    hours = part("4").replace("Z", "+00").fill_null("+00")
    zoned = pl.concat_str(part("1"), pl.lit("T"), part("2"), hours, pl.lit(":"), part("5").fill_null("00"))
    seconds = zoned.str.to_datetime("%Y-%m-%dT%H:%M:%S%:z", time_unit="ns", strict=False).dt.timestamp("ns")
    fraction = part("3").fill_null("").str.pad_end(9, "0").cast(pl.Int64, strict=False)
    return pl.coalesce(epoch_ns(column), millis, seconds + fraction)


def duration_ns(column: str) -> pl.Expr:
    """Ns from seconds as text; 0 where there is none."""
    seconds = pl.col(column).cast(pl.Float64, strict=False)
    seconds = pl.when(seconds.is_finite() & seconds.is_between(0, 1e8)).then(seconds).otherwise(0.0)
    return (seconds * NS).cast(pl.Int64)


_NAMES = (
    "hopopt icmp igmp ggp ipnip st2 tcp cbt egp igp bbn-rcc nvp pup argus emcon xnet chaos udp mux dcn "
    "hmp prm xns-idp trunk-1 trunk-2 leaf-1 leaf-2 rdp irtp iso-tp4 netblt mfe-nsp merit-inp dccp 3pc "
    "idpr xtp ddp idpr-cmtp tp++ il ipv6 sdrp ipv6-route ipv6-frag idrp rsvp gre dsr bna esp ah i-nlsp "
    "swipe narp mobile tlsp skip ipv6-icmp ipv6-no ipv6-opts any-host cftp any-net sat-expak kryptolan "
    "rvd ippc any-dist sat-mon visa ipcv cpnx cphb wsn pvp br-sat-mon sun-nd wb-mon wb-expak iso-ip vmtp "
    "secure-vmtp vines ttp nsfnet-igp dgp tcf eigrp ospf sprite-rpc larp mtp ax.25 ipip micp scc-sp "
    "etherip encap any-enc gmtp ifmp pnni pim aris scps qnx a/n ipcomp snp compaq-peer ipx-n-ip vrrp pgm "
    "any-0hop l2tp ddx iatp stp srp uti smp sm ptp isis fire crtp crudp sscopmce iplt sps pipe sctp fc "
    "rsvp-e2e-ignore mobility-header udplite mpls-in-ip "
)
PROTOCOLS = {name: number for number, name in enumerate(_NAMES.split())} | {
    "icmp6": 58, "icmpv6": 58, "icmp-v6": 58, "ib": 55, "ip": 0, "zero": 114, "dccp": 33, "st2": 5, "ipv4": 4,
    "ttp": 84, "iptm": 84, "sep": 33, "unknown_transport": 0, "ipv6-frag": 44, "nvp": 11, "idpr-cmtp": 38,
    "sccopmce": 128, "iso-tp4": 29, "pri-enc": 99, "i-nlsp": 52, "mhrp": 48, "bna": 49, "ospfigp": 89,
    "udp-lite": 136, "3pc": 34, "ddp": 37, "tp++": 39, "il": 40,
}  # fmt: skip
"""Protocol numbers by the names of IANA's list and argus', which UNSW-NB15 uses; 0: any without ports."""


def protocol(column: str) -> pl.Expr:
    """Protocol numbers of names or numbers; null where it is neither, such as arp."""
    number = pl.col(column).cast(pl.Int64, strict=False)
    named = pl.col(column).str.to_lowercase().replace_strict(PROTOCOLS, default=None, return_dtype=pl.Int64)
    return pl.coalesce(number, named)
