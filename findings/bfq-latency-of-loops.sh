#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: BFQ's low latency is for clients that wait for each answer
# guess: low_latency favours a process that sends little. One that sends 80 reads a second at
#        random times sends less than one that sends the next read after each answer, so its reads
#        are as fast.
# so:    The reader in a loop has a p99 of little more than the device's 8 ms: BFQ idles the device
#        for its next read. The p99 of the random one, with fewer reads, is ten times as long.
# read:  block/bfq-iosched.c (bfq_update_io_thinktime, bfq_better_to_idle)
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 queue_mode=2 irqmode=2 completion_nsec=8000000 hw_queue_depth=8 \
	submit_queues=1
echo bfq >/sys/block/nb0/queue/scheduler
echo 256 >/sys/block/nb0/queue/nr_requests
is "low_latency" "$(cat /sys/block/nb0/queue/iosched/low_latency)" 1
# job OPTION...: Runs fio on the disk.
job() {
	fio --filename=/dev/nb0 --direct=1 --rw=randread --ioengine=libaio --time_based --minimal \
		--group_reporting "$@" 2>/dev/null
}
# small OPTION...: Prints reads/s and p99 in ms of 4 KiB reads beside those of a greedy client.
small() {
	group b job --name=b --bs=64k --iodepth=32 --numjobs=6 --runtime=16 >/dev/null &
	sleep 3
	group a job --name=a --bs=4k --runtime=10 "$@" >/tmp/a
	echo "$(cut -d';' -f8 /tmp/a) $(grep -o '99\.000000%=[0-9]*' /tmp/a | head -n 1)" |
		awk -F'[ =]' '{ print $1, int($3 / 1000) }'
	wait
}
read -r rate p99 < <(small --iodepth=1)
holds "loop: reads/s" "$rate" 100 125
holds "loop: p99, ms" "$p99" 8 12
read -r rate p99 < <(small --iodepth=32 --rate_iops=80 --rate_process=poisson)
holds "random: reads/s" "$rate" 60 95
holds "random: p99, ms" "$p99" 50 1000
finish
