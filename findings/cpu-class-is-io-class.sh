#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: a real-time task has real-time I/O, and an idle one idle I/O, without ionice
# guess: The CPU scheduling class says nothing about I/O; without ionice all are best effort, and
#        only the nice value sets the level in it.
# so:    A SCHED_FIFO task that has set no I/O priority submits as class realtime, and a SCHED_IDLE
#        task as idle. mq-deadline serves classes in strict order, so `chrt -f 1` takes nearly all
#        of a disk with a queue, and `chrt -i 0` gets next to nothing. `ionice` prints
#        `none: prio 0` for such a task.
# read:  include/linux/ioprio.h (task_nice_ioclass), block/mq-deadline.c (dd_dispatch_request)
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 irqmode=2 completion_nsec=20000000 hw_queue_depth=2
echo mq-deadline >/sys/block/nb0/queue/scheduler
echo 256 >/sys/block/nb0/queue/nr_requests
# beside COMMAND...: Sets $own to the requests per second of a load that COMMAND starts, $other to
# those of a load beside it, and $queued to the requests of each class that wait.
beside() {
	local job=(fio --direct=1 --filename=/dev/nb0 --rw=randread --bs=4k --ioengine=libaio
		--iodepth=16 --time_based --runtime=5 --minimal)
	"$@" "${job[@]}" --name=a >/tmp/a &
	"${job[@]}" --name=b >/tmp/b &
	sleep 2.5
	queued=$(for class in 0 1 2; do
		wc -l </sys/kernel/debug/block/nb0/sched/read${class}_fifo_list
	done | xargs)
	wait
	own=$(cut -d';' -f8 /tmp/a) other=$(cut -d';' -f8 /tmp/b)
}
beside env
holds "requests/s of a task like the other" "$own" 40 60
beside chrt -f 1
echo "realtime, best effort, idle requests in the queue: $queued"
holds "requests/s of SCHED_FIFO" "$own" 85 105
holds "requests/s of the other beside it" "$other" 0 15
beside chrt -i 0
echo "realtime, best effort, idle requests in the queue: $queued"
holds "requests/s of SCHED_IDLE" "$own" 0 15
holds "idle requests that wait" "${queued##* }" 8 16
is "ionice of a SCHED_FIFO task" "$(chrt -f 1 ionice)" "none: prio 0"
finish
