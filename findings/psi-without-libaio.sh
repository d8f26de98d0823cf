#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: io.pressure is 0 for a program of libaio that does nothing but wait for its disk
# guess: io.pressure (PSI) is the share of time that a cgroup's tasks wait for I/O, so a group under
#        `riops=10` has some 100 %, whatever system calls it uses.
# so:    With pread and io_uring it is near 100 %. With libaio it is 0: io_getevents sleeps without
#        being counted as waiting for I/O. Nor do counters of the disk tell: what io.max holds back
#        is not in flight (/sys/block/DISK/inflight is 0 0).
# read:  fs/aio.c (read_events), io_uring/wait.c (current->in_iowait), kernel/sched/psi.c
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 irqmode=1
mkdir /sys/fs/cgroup/a
echo "$(number nb0) riops=10" >/sys/fs/cgroup/a/io.max
# pressure ENGINE: Sets $pressure to the percentage of the time of a load.
pressure() {
	local before start=${EPOCHREALTIME/./}
	before=$(sed -n 's/some.*total=//p' /sys/fs/cgroup/a/io.pressure)
	group a fio --name=x --filename=/dev/nb0 --rw=randread --bs=4k --direct=1 --ioengine="$1" \
		--iodepth=4 --time_based --runtime=5 --minimal >/dev/null &
	sleep 3
	inflight=$(xargs </sys/block/nb0/inflight)
	wait
	pressure=$(sed -n 's/some.*total=//p' /sys/fs/cgroup/a/io.pressure)
	pressure=$((100 * (pressure - before) / (${EPOCHREALTIME/./} - start)))
}
pressure psync
holds "% of the time, pread" "$pressure" 75 100
is "requests in flight meanwhile" "$inflight" "0 0"
pressure io_uring
holds "% of the time, io_uring" "$pressure" 75 100
pressure libaio
holds "% of the time, libaio" "$pressure" 0 2
is "requests in flight meanwhile" "$inflight" "0 0"
finish
