#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Disks that take few requests at a time: what they do through nrs, against what they do by themselves.
. /tests/nrs.sh

# disk PLACES NANOSECONDS: the disk /dev/few, which takes so many requests at a time and needs that long for each.
disk() {
	null_blk_create few size=1024 queue_mode=2 irqmode=2 completion_nsec="$2" hw_queue_depth="$1" submit_queues=1
	echo none >/sys/block/few/queue/scheduler
	chmod 666 /dev/few
}

# reader UID DEPTH PROCESSES: starts them on $path.
reader() {
	setpriv --reuid "$1" --clear-groups fio --filename="$path" --rw=randread --bs=16k --direct=1 --ioengine=libaio \
		--iodepth="$2" --numjobs="$3" --norandommap --invalidate=0 --time_based --runtime=120 --minimal --group_reporting --name=r >/dev/null 2>&1 &
}

# Two users, one with four times the processes.
both() {
	reader 1001 32 1
	reader 1002 32 4
}

# One of them.
lone() {
	reader 1001 64 1
}

# rate CLIENTS: requests of the disk in 1000 s while they are at work on $path, in $rate.
rate() {
	local before now start pids
	"$1"
	pause 1
	read -r before _ </sys/block/few/stat
	start=${EPOCHREALTIME/./}
	pause 0.7
	read -r now _ </sys/block/few/stat
	rate=$(((now - before) * 1000000000 / (${EPOCHREALTIME/./} - start)))
	pids=$(pidof fio)
	# shellcheck disable=SC2086 # several processes
	kill -KILL $pids
	wait || true
	wait_for 10 '! pidof fio >/dev/null'
}

# unused PLACES NANOSECONDS: at most 3 % of what the disk does by itself.
unused() {
	local path rate bare clients
	module
	disk "$1" "$2"
	for clients in both lone; do
		path=/dev/few
		rate $clients
		bare=$rate
		client few /dev/few svc
		policy svc 'fairshare uid_fair'
		path=/dev/mapper/few
		rate $clients
		dm_remove few
		say "$1 places, $clients: $bare requests per 1000 s by itself, $rate through nrs"
		more 0.97 "$rate" "$bare" || fail "$1 places, $clients: $rate of $bare requests per 1000 s"
	done
}

for places in 1 2 4 8; do try 60 "$places places: at most 3 % unused" unused $places 2000000; done
try 60 "32 places: at most 3 % unused" unused 32 8000000
remarks 'places, '
summary
