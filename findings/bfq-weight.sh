#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: io.weight means nothing to BFQ
# guess: cgroup v2 has one weight, io.weight; BFQ is the proportional scheduler, so it obeys it.
# so:    io.weight belongs to io.cost alone. Under BFQ two groups of 100 and 1000 share evenly;
#        BFQ reads io.bfq.weight, a file that is there only once BFQ is loaded. Both read
#        `default 100`.
# read:  block/bfq-cgroup.c (bfq_blkg_files), block/blk-iocost.c (ioc_files)
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 irqmode=2 completion_nsec=2000000 hw_queue_depth=4
mkdir /sys/fs/cgroup/{a,b}
is "io.bfq.weight before BFQ" "$(cat /sys/fs/cgroup/a/io.bfq.weight 2>/dev/null)" ''
echo bfq >/sys/block/nb0/queue/scheduler
echo 256 >/sys/block/nb0/queue/nr_requests
echo 0 >/sys/block/nb0/queue/iosched/low_latency
# iops [OPTION...]: Prints the requests per second of an fio job.
iops() {
	fio --name=x --direct=1 --rw=randread --bs=4k --ioengine=libaio --iodepth=16 --time_based \
		--minimal "$@" 2>/dev/null | awk -F';' '{ print int($8) }'
}
# ratio FILE: Sets weights 100 and 1000 and prints ten times the ratio of the groups' requests.
ratio() {
	echo "default 1000" >"/sys/fs/cgroup/b/$1"
	group a iops --filename=/dev/nb0 --runtime=4 >/tmp/a &
	group b iops --filename=/dev/nb0 --runtime=4 >/tmp/b
	wait
	echo "default 100" >"/sys/fs/cgroup/b/$1"
	echo $((10 * $(</tmp/b) / $(</tmp/a)))
}
holds "ten times the ratio, io.weight 100:1000" "$(ratio io.weight)" 8 12
holds "ten times the ratio, io.bfq.weight 100:1000" "$(ratio io.bfq.weight)" 50 110
finish
