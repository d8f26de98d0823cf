#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Makes a copy of a program that loads fewer libraries.

usage: lean.py [--fio] PROGRAM RESULT LIBRARY...

RESULT is a copy of PROGRAM that loads only the LIBRARYs. What the others define is a weak symbol in
it that nothing defines: a call of such a function ends the program at address 0.

  --fio   Leaves out two more things that a start of fio takes its time for; no result changes:
          * The memory of jobs is not cleared, as new shared memory is clear. That touched 1.5 MB.
          * The CPU's clock is calibrated in 51 steps of 12.8 us instead of 1.28 ms. fio uses that
            clock only where the CPU promises a constant rate.
          Where the machine code is not what this script knows, it stays as it is and that is said.
"""

import os
import re
import struct
import sys

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SYMTAB = 0, 1, 5, 6
DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
VER_NDX_GLOBAL = 1
STB_WEAK = 2


class Program:
    """A 64-bit little-endian ELF file in memory."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = bytearray(file.read())
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise SystemExit(f"{path} is no 64-bit ELF file")
        at, size, count = self.get("Q", 32)[0], *self.get("HH", 54)
        self.segments = [self.get("IIQQQQQQ", at + i * size) for i in range(count)]
        self.dynamic_at, length = next((s[2], s[5]) for s in self.segments if s[0] == PT_DYNAMIC)
        self.dynamic = []
        for at in range(self.dynamic_at, self.dynamic_at + length, 16):
            self.dynamic.append(self.get("qQ", at))
            if self.dynamic[-1][0] == DT_NULL:
                break
        self.tags = dict(self.dynamic)

    def get(self, form, at):
        return struct.unpack_from("<" + form, self.data, at)

    def put(self, form, at, *values):
        struct.pack_into("<" + form, self.data, at, *values)

    def place(self, tag):
        """Returns where in the file the table of a tag is."""
        address = self.tags[tag]
        for kind, _, offset, start, _, size, _, _ in self.segments:
            if kind == PT_LOAD and start <= address < start + size:
                return address - start + offset
        raise SystemExit(f"no segment has address {address:#x}")

    def string(self, offset):
        at = self.place(DT_STRTAB) + offset
        return self.data[at : self.data.index(0, at)].decode()

    def drop_versions(self, kept):
        """Takes the versions of the other libraries out of the chain, and returns their numbers."""
        at, stays, gone = self.place(DT_VERNEED), [], set()
        first = at
        for _ in range(self.tags[DT_VERNEEDNUM]):
            _, count, file, version, following = self.get("HHIII", at)
            if self.string(file) in kept:
                stays.append(at)
            else:
                version += at
                for _ in range(count):
                    gone.add(self.get("H", version + 6)[0])
                    version += self.get("I", version + 12)[0]
            at += following
        for this, following in zip(stays, stays[1:] + [None]):
            self.put("I", this + 12, following - this if following else 0)
        self.tags[DT_VERNEED] += stays[0] - first
        self.tags[DT_VERNEEDNUM] = len(stays)
        return gone

    def weaken(self, gone):
        """Makes weak what is undefined and of a version that is gone, or none; returns how many."""
        symbols, versions, weak = self.place(DT_SYMTAB), self.place(DT_VERSYM), 0
        # The string table follows the symbol table.
        for i in range(1, (self.place(DT_STRTAB) - symbols) // 24):
            _, info, _, section = self.get("IBBH", symbols + 24 * i)
            version = self.get("H", versions + 2 * i)[0]
            if section == 0 and (version in gone or version <= VER_NDX_GLOBAL):
                self.put("H", versions + 2 * i, VER_NDX_GLOBAL)
                self.put("B", symbols + 24 * i + 4, STB_WEAK << 4 | info & 15)
                weak += 1
        return weak

    def drop_libraries(self, kept):
        """Writes the dynamic table without the other libraries; returns how many are left out."""
        entries = [
            (tag, self.tags[tag] if tag in (DT_VERNEED, DT_VERNEEDNUM) else value)
            for tag, value in self.dynamic
            if tag != DT_NEEDED or self.string(value) in kept
        ]
        dropped = len(self.dynamic) - len(entries)
        for i, entry in enumerate(entries + [(DT_NULL, 0)] * dropped):
            self.put("qQ", self.dynamic_at + 16 * i, *entry)
        return dropped

    def drop_sections(self):
        """Leaves out the section headers: they are no longer true, and a start needs none."""
        self.put("Q", 40, 0)
        self.put("HHH", 58, 0, 0, 0)

    def number(self, what, places, value):
        """Replaces a number of the machine code where its place is beyond doubt."""
        if len(places) == 1:
            self.put("I", places[0], value)
        else:
            print(f"lean: {what}: {len(places)} places, left as it is")

    def uncleared(self):
        """Returns where memset gets the length that shmget, just before, got with 8 bytes more."""
        places = []
        # xor esi, esi; mov edx, length
        for call in re.finditer(rb"\x31\xf6\xba(....)", self.data, re.DOTALL):
            asked = struct.unpack("<I", call[1])[0] + 8
            if asked >= 1 << 32:
                continue
            # mov esi, size
            if b"\xbe" + struct.pack("<I", asked) in self.data[call.start() - 128 : call.start()]:
                places.append(call.start() + 3)
        return places

    def calibration(self):
        """Returns where the length of a step of the calibration is: cmp rcx, 1279999 (ns)."""
        limit = b"\xff\x87\x13\x00"
        return [m.start() for m in re.finditer(re.escape(limit), self.data)]


def main():
    arguments = sys.argv[1:]
    fio = arguments[:1] == ["--fio"]
    if fio:
        del arguments[0]
    if len(arguments) < 3 or arguments[0].startswith("-"):
        raise SystemExit(__doc__)
    source, result, *kept = arguments
    program = Program(source)
    weak = program.weaken(program.drop_versions(kept))
    dropped = program.drop_libraries(kept)
    program.drop_sections()
    if fio:
        program.number("clearing of the jobs' memory", program.uncleared(), 0)
        program.number("calibration of the clock", program.calibration(), 12799)
    with open(result, "wb") as file:
        file.write(program.data)
    os.chmod(result, 0o755)
    print(f"lean: {dropped} libraries left out, {weak} symbols weak")


main()
