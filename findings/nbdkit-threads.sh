#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: nbdkit's delay filter is a disk with 16 slots
# guess: `--filter=delay rdelay=1` adds a second to each request; requests in flight wait side by
#        side, so 32 reads at once take one second.
# so:    Each request sleeps in a thread of its connection, and there are 16: 32 reads take two
#        seconds. The simulated latency grows with the load, at 16 in flight. `--threads 64` moves
#        the bound.
# read:  nbdkit(1), --threads; nbdkit-delay-filter(1)
. "${0%/*}/lib.sh"
system nbdkit,python3-minimal
version nbdkit "$(chroot "$root" nbdkit --version)" 'nbdkit 1.42.*'
cat >"$root/reads.py" <<'EOF'
import socket
import struct
import sys
import time

link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
count = int(sys.argv[2])


def receive(size):
    data = b""
    while len(data) < size:
        data += link.recv(size - len(data))


receive(18)
# NBD_FLAG_C_FIXED_NEWSTYLE and NO_ZEROES; NBD_OPT_EXPORT_NAME with the default export.
link.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0))
receive(10)
start = time.monotonic()
for i in range(count):
    link.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, i, 4096 * i, 4096))
for i in range(count):
    receive(16 + 4096)
print(int(1000 * (time.monotonic() - start)))
EOF
# ms COUNT [OPTION...]: Prints the time of COUNT reads at once.
ms() {
	local count=$1
	shift
	# shellcheck disable=SC2016
	chroot "$root" nbdkit -U - "$@" --filter=delay null size=1M rdelay=1 \
		--run 'python3 /reads.py $unixsocket '"$count"
}
holds "ms for 16 reads at once" "$(ms 16)" 1000 1500
holds "ms for 17 reads at once" "$(ms 17)" 2000 2800
holds "ms for 32 reads at once" "$(ms 32)" 2000 2800
holds "ms for 32 reads at once, --threads 64" "$(ms 32 --threads 64)" 1000 1500
finish
