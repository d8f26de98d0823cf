#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Locality on a disk with an arm. A seek takes 8 to 20 ms, and a request of 32 KiB takes 0.2 ms, or
# the CPU time of the copies in nbd: requests are small, so that seeks dominate. A slice is 32
# requests.
. /tests/nrs.sh

# speed NAME: Sets $a and $b to the KiB that the users read in 6 s, and $sum to their sum.
speed() {
	# Requests queued before are done.
	window 4 ended a b >/dev/null
	local got
	got=$(window 6 bytes a b)
	read -r a b <<<"$got"
	a=$((a >> 10)) b=$((b >> 10)) sum=$((a + b))
	say "$1: $a and $b KiB in 6 s; CPUs busy $(cat /tmp/busy) %"
}

# Verifies locality for two users who read four streams each, in different halves of the disk.
reading() {
	module
	[ -d /sys/module/nbd ] || modprobe nbd nbds_max=1 max_part=0
	wait_for 5 '! [ -e /sys/block/nbd0/pid ]'
	nrs-test disk /dev/nbd0 &
	wait_for 10 '[ -e /sys/block/nbd0/pid ]' || fail "no disk"
	echo none >/sys/block/nbd0/queue/scheduler
	client a /dev/nbd0 svc
	client b /dev/nbd0 svc
	echo 1 >"$(at svc slots)"
	# First without locality: the users' requests then alternate, also in the order of arrival.
	policy svc 'fairshare uid_fair'
	local streams=(--rw=read --bs=32k --numjobs=4 --iodepth=8 --offset_increment=128m --size=128m)
	begin a as=1001 "${streams[@]}"
	begin b as=1002 "${streams[@]}" --offset=512m
	saturated 24 a b
	speed 'without locality'
	local plain=$sum
	policy svc fifo
	speed fifo
	local fifo=$sum
	policy svc 'fairshare uid_fair'
	set_to svc nrs_fairshare_locality 1
	speed locality
	more 3 "$sum" "$fifo"
	more 3 "$sum" "$plain"
	within 5 "$a" "$b"
}

try 60 "locality: eight streams of two users, three times what fifo reads, equal bytes within 5 %" \
	reading
remarks '^(without locality|fifo|locality):'
summary
