#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: elevator-share.sh [FUNCTION...]
#
# Abilities that only the I/O scheduler of a disk has: it knows the cgroup that has written the data
# that the kernel flushes. tbf+elevator, fair+elevator and others test rates and shares of
# submitters that both front-ends know.
NRS_FRONT=elevator
. /tests/nrs.sh

only=$*

# large: Creates two cgroups, lets the kernel flush only on request, and makes the disk's queue
# large enough for all of it: the kernel flushes for both groups, so a full queue would starve one.
large() {
	mkdir -p /sys/fs/cgroup/test.{a,b}
	echo $((400 << 20)) >/proc/sys/vm/dirty_bytes
	echo $((300 << 20)) >/proc/sys/vm/dirty_background_bytes
	echo 2048 >/sys/block/nb0/queue/nr_requests
}

# setup MICROSECONDS: Creates two devices on one disk, whose requests of at most 64 KiB take
# MICROSECONDS.
setup() {
	module
	slow_lower nb0 "$1"000 size=1024 max_sectors=128
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	echo 8 >"$(at svc slots)"
	large
}

# flushed A B: Lets groups a and b write A and B through the page cache, and starts the flush.
flushed() {
	local name fd
	for name in a b; do
		# The last close of a disk flushes it.
		exec {fd}<>"$1"
		bash -c "echo \$\$ >/sys/fs/cgroup/test.$name/cgroup.procs
			dd if=/dev/zero of=$1 bs=64k count=$([ $name = a ] && echo 960 || echo 1280) \
				conv=notrunc 2>/dev/null"
		shift
	done
	sync &
}

# waiting: Verifies that both devices have a backlog.
waiting() {
	[ "${all_held[0]}" -ge 2 ] && [ "${all_held[1]}" -ge 2 ] ||
		fail "a backlog ended: ${all_held[*]}"
}

# limited [NAME]: Verifies the rates of two groups with a limit each, if jobid_name is NAME.
limited() {
	setup 1000
	[ -z "$1" ] || adjust /sys/block/nb0/queue/iosched/jobid_name "$1"
	policy svc 'tbf cgroup'
	set_to svc nrs_tbf_rule "start one cgroup={/test.a} rate=1MiB/s"
	set_to svc nrs_tbf_rule "start two cgroup={/test.b} rate=4MiB/s"
	flushed /dev/mapper/{a,b}
	saturated 100 a b
	# The first requests are sent before others are queued, and then paid for.
	sleep 2
	gather 10 bytes
	within 5 $((got[0] * 1000000)) $(((1 << 20) * time)) ||
		fail "1 MiB/s: ${got[*]} in $time us: $(cat "$(at svc nrs_tbf_stats)")"
	within 5 $((got[1] * 1000000)) $(((4 << 20) * time)) ||
		fail "4 MiB/s: ${got[*]} in $time us: $(cat "$(at svc nrs_tbf_stats)")"
	waiting
}

# shared WEIGHT: Verifies that one group has WEIGHT times the share of the other.
shared() {
	setup 20000
	policy svc 'fairshare cgroup_fair'
	set_to svc nrs_fairshare_weights "cgroup:/test.a:1,cgroup:/test.b:$1"
	flushed /dev/mapper/{a,b}
	saturated 100 a b
	gather 1 bytes
	gather 2 bytes
	within 5 $((got[0] * $1)) "${got[1]}" ||
		fail "1:$1: ${got[*]}: $(cat "$(at svc nrs_fairshare_stats)")"
	waiting
}

# Verifies the rates of two groups on files of one file system. The files' blocks are already
# allocated: a commit of the journal would wait for data in new blocks, even if their writer is
# slow.
files() {
	module
	lower nb0 memory_backed=1 size=256 irqmode=2 completion_nsec=1000000 cache_size=16
	client a /dev/nb0 svc
	mkfs.ext4 -q -J size=8 -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	local name before start now
	for name in a b; do dd if=/dev/zero of=/mnt/a/$name bs=64k count=1280 2>/dev/null; done
	umount /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	policy svc 'tbf cgroup'
	set_to svc nrs_tbf_rule "start one cgroup={/test.a} rate=1MiB/s"
	set_to svc nrs_tbf_rule "start two cgroup={/test.b} rate=4MiB/s"
	large
	# served: Prints the bytes that the disk has written for each group.
	served() {
		awk -v a='"cgroup:/test.a"' -v b='"cgroup:/test.b"' '
			$2 == "class:" { class = $3 }
			$1 == "cost:" { cost[class] = $2 }
			END { print cost[a] + 0, cost[b] + 0 }' "$(at svc nrs_tbf_stats)"
	}
	flushed /mnt/a/{a,b}
	saturated 20 a
	sleep 2
	before=$(served) start=${EPOCHREALTIME/./}
	sleep 10
	now=$(served) start=$((${EPOCHREALTIME/./} - start))
	say "bytes of two groups: $before, and after $((start / 1000)) ms: $now"
	awk -v b="$before" -v n="$now" -v us=$start 'BEGIN {
		split(b, from); split(n, to); want[1] = 1; want[2] = 4
		for (i = 1; i <= 2; i++) {
			e = (to[i] - from[i]) / (want[i] * 1048576 * us / 1e6) - 1
			bad += e > 0.05 || e < -0.05
		}
		exit bad }' || fail "$(cat "$(at svc nrs_tbf_stats)")"
	echo fifo >"$(at svc nrs_policies)"
}

try 60 "tbf: flushed data of two cgroups keeps their rates within 5 %" limited ''
long try 60 "tbf: so does data of submitters with host names" limited %H
try 60 "fairshare: flushed data of two cgroups, 1:4 within 5 %" shared 4
long try 60 "fairshare: flushed data of two cgroups, 1:1 within 5 %" shared 1
long try 90 "tbf: flushed files of two cgroups keep their rates within 5 %" files
echo 20 >/proc/sys/vm/dirty_ratio
echo 10 >/proc/sys/vm/dirty_background_ratio
remarks '^bytes'
summary
