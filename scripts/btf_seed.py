# SPDX-License-Identifier: Apache-2.0
"""Write an object's types as the fuzz target `btf` takes them: length of .BTF, .BTF, .BTF.ext."""

import struct
import sys
from pathlib import Path


def sections(elf: bytes) -> dict[str, bytes]:
    """Content by name."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    count, names = struct.unpack_from("<HH", elf, 60)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + 64 * index) for index in range(count)]
    start = headers[names][4]
    found = {}
    for name, _, _, _, offset, size in headers:
        end = elf.index(b"\0", start + name)
        found[elf[start + name : end].decode()] = elf[offset : offset + size]
    return found


def main() -> None:
    """Read the object, write the seed."""
    source, seed = map(Path, sys.argv[1:])
    found = sections(source.read_bytes())
    types, ext = found[".BTF"], found[".BTF.ext"]
    seed.write_bytes(struct.pack("<H", len(types)) + types + ext)


if __name__ == "__main__":
    main()
