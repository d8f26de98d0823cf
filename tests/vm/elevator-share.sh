#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: elevator-share.sh [FUNCTION...]
#
# What only the I/O scheduler of a disk can do: it knows the cgroup that has written what the kernel flushes. Rates and shares of
# submitters that both front-ends know are tested by tbf+elevator, fair+elevator and the like.
NRS_FRONT=elevator
. /tests/nrs.sh

only=$*

# setup MICROSECONDS: two devices on one disk; requests of at most 64 KiB that take so long.
setup() {
	module
	slow_lower nb0 "$1"000 size=1024 max_sectors=128
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	echo 8 >"$(at svc slots)"
	much_dirty
}

# much_dirty: the kernel lets so much wait to be flushed that both have a backlog, and begins early.
much_dirty() {
	echo $((96 << 20)) >/proc/sys/vm/dirty_bytes
	echo $((8 << 20)) >/proc/sys/vm/dirty_background_bytes
}

# number GROUP: the number of a cgroup, which is made.
number() {
	mkdir -p "/sys/fs/cgroup/test.$1"
	stat -c %i "/sys/fs/cgroup/test.$1"
}

# flushed DEVICE...: of each device there is a cgroup, which writes it through the page cache, and not twice: fio waits for all of it
# before it does that.
flushed() {
	local name
	for name; do
		(
			echo $BASHPID >"/sys/fs/cgroup/test.$name/cgroup.procs"
			begin "$name" --direct=0 --ioengine=psync --rw=write --bs=64k --size=512m
		)
	done
	for name; do saturated 4 "$name"; done
	# What was saved up is gone.
	gather 1 bytes
}

# waiting: all that is flushed has a backlog.
waiting() {
	[ "${all_held[0]}" -ge 2 ] && [ "${all_held[1]}" -ge 2 ] || fail "a backlog ended: ${all_held[*]}"
}

# Two groups with a limit each.
limited() {
	setup 1000
	policy svc 'tbf cgroup'
	set_to svc nrs_tbf_rule "start one cgroup={$(number a)} rate=2MiB/s"
	set_to svc nrs_tbf_rule "start two cgroup={$(number b)} rate=6MiB/s"
	flushed a b
	gather "$(brief 8 20)" bytes
	within 5 $((got[0] * 1000000)) $(((2 << 20) * time)) || fail "2 MiB/s: ${got[*]} in $time us: $(cat "$(at svc nrs_tbf_stats)")"
	within 5 $((got[1] * 1000000)) $(((6 << 20) * time)) || fail "6 MiB/s: ${got[*]} in $time us: $(cat "$(at svc nrs_tbf_stats)")"
	waiting
}

# shared WEIGHT: one group has that many times the share of the other.
shared() {
	# As fast as the CPU can be asked for what is to be flushed.
	setup 40000
	echo 4 >"$(at svc slots)"
	policy svc 'fairshare cgroup_fair'
	set_to svc nrs_fairshare_weights "cgroup:$(number a):1,cgroup:$(number b):$1"
	flushed a b
	gather "$(brief 6 12)" bytes
	within 5 $((got[0] * $1)) "${got[1]}" || fail "1:$1: ${got[*]}: $(cat "$(at svc nrs_fairshare_stats)")"
	waiting
}

# Files of one file system, which the kernel flushes as well. They have their blocks already: a commit of the journal waits for what
# was written to new ones, whoever is slow.
files() {
	module
	lower nb0 memory_backed=1 size=256 irqmode=2 completion_nsec=1000000 cache_size=16
	client a /dev/nb0 svc
	mkfs.ext4 -q -J size=8 -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	local name before start now numbers
	for name in a b; do head -c $((96 << 20)) /dev/zero >/mnt/a/$name; done
	umount /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	policy svc 'tbf cgroup'
	numbers=("$(number a)" "$(number b)")
	set_to svc nrs_tbf_rule "start one cgroup={${numbers[0]}} rate=1MiB/s"
	set_to svc nrs_tbf_rule "start two cgroup={${numbers[1]}} rate=3MiB/s"
	much_dirty
	# served: bytes that the disk has written for each group.
	served() {
		awk -v a="\"cgroup:${numbers[0]}\"" -v b="\"cgroup:${numbers[1]}\"" '$2 == "class:" { class = $3 } $1 == "cost:" { cost[class] = $2 }
			END { print cost[a] + 0, cost[b] + 0 }' "$(at svc nrs_tbf_stats)"
	}
	for name in a b; do
		(
			echo $BASHPID >"/sys/fs/cgroup/test.$name/cgroup.procs"
			exec fio --filename=/mnt/a/$name --rw=write --bs=64k --size=96m --ioengine=psync --minimal --name=flushed >/dev/null 2>&1
		) &
	done
	saturated 20 a
	sleep 3
	before=$(served) start=${EPOCHREALTIME/./}
	sleep 12
	now=$(served) start=$((${EPOCHREALTIME/./} - start))
	say "bytes of two groups: $before, and after $((start / 1000)) ms: $now"
	awk -v b="$before" -v n="$now" -v us=$start 'BEGIN { split(b, from); split(n, to); want[1] = 1; want[2] = 3
		for (i = 1; i <= 2; i++) { e = (to[i] - from[i]) / (want[i] * 1048576 * us / 1e6) - 1; bad += e > 0.05 || e < -0.05 }
		exit bad }' || fail "$(cat "$(at svc nrs_tbf_stats)")"
}

# One who has more requests than the disk has places for them, and one with one at a time, who finds a place all the same.
greedy() {
	module
	slow_lower nb0 4000000
	client a /dev/nb0 svc
	# The block layer lets all of them wait in the scheduler.
	echo 2048 >/sys/block/nb0/queue/nr_requests
	policy svc 'fairshare uid_fair'
	echo 8 >"$(at svc slots)"
	local alone beside
	load a as=1002 --iodepth=1 --time_based --runtime=2 >/tmp/alone.txt
	begin a as=1001 --iodepth=256 --numjobs=4
	saturated 100 a
	load a as=1002 --iodepth=1 --time_based --runtime=5 >/tmp/beside.txt
	alone=$(terse /tmp/alone.txt 8) beside=$(terse /tmp/beside.txt 8)
	say "requests per second of one at a time: alone $alone, beside 1024 $beside"
	more 0.5 "${beside%.*}" "${alone%.*}" || fail "alone $alone, beside 1024 of another user $beside per second"
}

try 60 "tbf: what is flushed for two cgroups keeps their rates within 5 %" limited
try 60 "fairshare: what is flushed for two cgroups, 1:4 within 5 %" shared 4
long try 60 "fairshare: what is flushed for two cgroups, 1:1 within 5 %" shared 1
long try 90 "tbf: files of two cgroups that are flushed keep their rates within 5 %" files
long try 60 "one request at a time beside a thousand" greedy
echo 20 >/proc/sys/vm/dirty_ratio
echo 10 >/proc/sys/vm/dirty_background_ratio
remarks '^(bytes|requests)'
summary
