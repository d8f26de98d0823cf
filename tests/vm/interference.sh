#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: interference.sh [FUNCTION...]
#
# How long a job takes beside a greedy one, in its time alone, and what the disk serves meanwhile:
# ThemisIO's comparison with FIFO, token buckets and GIFT. The disk serves eight requests at a time,
# each in 16 ms, so the CPU is mostly idle. Rows for the manual go to /out/interference.md.
. /tests/nrs.sh

only=$*

# What the disk can serve, requests/s; the part of each of two jobs; and the seconds between two
# decisions of GIFT.
capacity=500 half=250 epoch=1

# setup: Creates the disk, a file system for the job, and a device for the greedy one.
setup() {
	module
	slow_lower nb0 16000000 size=512 memory_backed=1
	dm_create job "0 131072 nrs /dev/nb0 0 svc 2 jobid job"
	dm_create greedy "0 131072 nrs /dev/nb0 524288 svc 2 jobid greedy"
	chmod 666 /dev/mapper/greedy
	echo 8 >"$(at svc slots)"
	mkfs.ext4 -q -b 4096 -J size=4 -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/job
	mkdir -p /mnt/job
	mount -t ext4 /dev/mapper/job /mnt/job
	local i
	rm -rf /tmp/tree
	for i in {1..150}; do
		mkdir -p /tmp/tree/$((i % 10))
		echo "$i" >/tmp/tree/$((i % 10))/$i
	done
}

# bulk: Writes and reads a file by four processes.
bulk() {
	local mode
	for mode in write read; do
		fio --name=bulk --directory=/mnt/job --rw=$mode --bs=64k --size=8m --numjobs=4 --direct=1 \
			--ioengine=libaio --iodepth=4 --minimal --group_reporting >/dev/null
	done
}

# metadata: Copies a tree of small files to the disk, and reads and removes it, without the cache.
metadata() {
	cp -r /tmp/tree /mnt/job/
	sync -f /mnt/job
	echo 3 >/proc/sys/vm/drop_caches
	cat /mnt/job/tree/*/* >/dev/null
	rm -r /mnt/job/tree
	sync -f /mnt/job
}

# rates JOB GREEDY: Sets the rates of the two jobs.
rates() {
	set_to svc nrs_tbf_rule "change job rate=$1"
	set_to svc nrs_tbf_rule "change greedy rate=$2"
}

# gift: Divides the capacity, for each epoch, among the jobs that had requests in the epoch before.
gift() {
	local before=(0 0) now job greedy
	while :; do
		read_counters
		now=("${all_ended[@]}")
		job=$half greedy=$half
		[ "${now[0]}" != "${before[0]}" ] || greedy=$capacity
		[ "${now[1]}" != "${before[1]}" ] || job=$capacity
		rates $job $greedy
		before=("${now[@]}")
		pause $epoch
	done
}

# under POLICY: Sets the policy.
under() {
	case $1 in
	fifo) policy svc fifo ;;
	fairshare) policy svc 'fairshare jobid_fair' ;;
	tbf)
		policy svc 'tbf jobid'
		set_to svc nrs_tbf_rule "start job jobid={job} rate=$half"
		set_to svc nrs_tbf_rule "start greedy jobid={greedy} rate=$half"
		;;
	# The rules of tbf, as the daemon changes them.
	gift) ;;
	esac
}

# timed JOB: Sets $took to the time of the job, ms, and $served to what the disk served meanwhile,
# requests/s.
timed() {
	local start before cpu
	cpu=$(cpu_time)
	read_counters
	start=$stamp before=$((all_ended[0] + all_ended[1]))
	"$1"
	read_counters
	idle_time "$(busy_since "$cpu")"
	took=$(((stamp - start) / 1000))
	served=$(((all_ended[0] + all_ended[1] - before) * 1000 / took))
}

# beside_greedy JOB: Runs the job alone, and beside the greedy one under each policy.
beside_greedy() {
	local name=$1 alone took served policy daemon slowdown
	declare -A slower
	setup
	under fifo
	# The first run also loads the programs.
	"$name"
	timed "$name"
	alone=$took
	say "$name alone: $alone ms"
	begin greedy as=1001 --bs=64k --numjobs=4 --iodepth=32
	for policy in fifo tbf gift fairshare; do
		under $policy
		daemon=''
		if [ $policy = gift ]; then gift & daemon=$!; fi
		saturated greedy
		timed "$name"
		[ -z "$daemon" ] || { kill $daemon && wait $daemon || true; }
		slowdown=$(((took - alone) * 100 / alone))
		slower[$policy]=$slowdown
		say "$name under $policy: $took ms, $slowdown % slower, $served requests/s"
		echo "| $name | $policy | $alone | $took | $slowdown | $served |" >>/out/interference.md
	done
	# Two jobs that always want all take twice as long; a job that waits between requests less.
	[ "${slower[fairshare]}" -le 125 ] || fail "fairshare: ${slower[fairshare]} % slower"
	[ $((slower[fairshare] * 100)) -le $((slower[fifo] * 41)) ] ||
		fail "fairshare ${slower[fairshare]} %, fifo ${slower[fifo]} % slower"
}

long try 120 "a job of large requests beside a greedy one" beside_greedy bulk
long try 120 "a job of small files beside a greedy one" beside_greedy metadata
remarks '^(bulk|metadata)'
summary
