#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Disks with a small queue depth: throughput through nrs, compared with the bare disk.
. /tests/nrs.sh

# disk PLACES NANOSECONDS: Creates the disk /dev/few with queue depth PLACES and this service time.
disk() {
	null_blk_create few size=1024 queue_mode=2 irqmode=2 completion_nsec="$2" hw_queue_depth="$1" \
		submit_queues=1
	echo none >/sys/block/few/queue/scheduler
	chmod 666 /dev/few
}

# reader UID DEPTH PROCESSES: Starts the processes on $path.
reader() {
	setpriv --reuid "$1" --clear-groups fio --filename="$path" --rw=randread --bs=16k --direct=1 \
		--ioengine=libaio --iodepth="$2" --numjobs="$3" --norandommap --invalidate=0 --time_based \
		--runtime=120 --minimal --group_reporting --name=r >/dev/null 2>&1 &
}

# Starts two users, one with four times the processes of the other. Each fio has one more process.
both() {
	reader 1001 32 1
	reader 1002 32 4
	processes=7
}

# Starts one user.
lone() {
	reader 1001 64 1
	processes=2
}

# rate CLIENTS: Sets $rate to the requests of the disk in 1000 s while CLIENTS run on $path.
rate() {
	local before now start pids processes
	"$1"
	wait_for 20 '[ "$(pidof fio | wc -w)" = $processes ]'
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

# unused PLACES NANOSECONDS: Verifies that at most 3 % of the throughput of the bare disk is lost.
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
