#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: async_depth is a file of the queue, and every write to nr_requests rescales it
# guess: async_depth is a parameter of mq-deadline (iosched/async_depth); what is set stays until
#        the scheduler changes.
# so:    It is queue/async_depth, for mq-deadline, kyber and BFQ alike: by default all of
#        nr_requests under mq-deadline, three quarters under the other two. A write to nr_requests
#        keeps the ratio: 20 of 128 become 31 of 200, then 3 of 20, and 30 of 200 again.
# read:  block/blk-mq.c (blk_mq_update_nr_requests), block/blk-sysfs.c (queue_async_depth_store)
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 irqmode=1
queue=/sys/block/nb0/queue
for scheduler in mq-deadline kyber bfq; do
	echo $scheduler >$queue/scheduler
	is "$scheduler: iosched/async_depth" "$(cat $queue/iosched/async_depth 2>/dev/null)" ''
	default=$(<$queue/async_depth)
	is "$scheduler: async_depth of nr_requests" "$default of $(<$queue/nr_requests)" \
		"$([ $scheduler = mq-deadline ] && echo 128 || echo 96) of 128"
	echo 20 >$queue/async_depth
	seen=''
	for requests in 200 20 200; do
		echo $requests >$queue/nr_requests
		seen+=" $(<$queue/async_depth) of $requests"
	done
	is "$scheduler: after async_depth=20, nr_requests=200, 20, 200" "${seen# }" \
		"31 of 200 3 of 20 30 of 200"
done
finish
