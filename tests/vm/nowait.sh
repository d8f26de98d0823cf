#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Submitters that must not block, devices with fewer tags than requests, completions from
# interrupts, polled queues.
. /tests/nrs.sh

setup() {
	module
	local policy=$1
	shift
	lower nb0 memory_backed=1 submit_queues=1 "$@"
	client a /dev/nb0 svc
	policy svc "$policy"
}

# Verifies that RWF_NOWAIT requests are queued on a disk with two tags, instead of refused.
nowait() {
	setup fairshare hw_queue_depth=2 irqmode=2 completion_nsec=300000
	verified a --ioengine=io_uring --nowait=1 --size=2m --iodepth=32
	balanced a
	# Queued requests must not fail with EAGAIN later.
	dm load a --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 svc 2 opportunity off"
	dm resume a
	verified a --ioengine=libaio --nowait=1 --size=2m --iodepth=32
	balanced a
}

# Verifies more slots than tags with several submitters: the tags limit, and nothing hangs.
few_tags() {
	setup fairshare hw_queue_depth=2 irqmode=2 completion_nsec=300000
	echo 64 >"$(at svc slots)"
	verified a --size=1m --numjobs=4 --offset_increment=4m --iodepth=32
	balanced a
}

# Verifies completions from hard interrupts, soft interrupts, and from the submitter itself.
completions() {
	setup fairshare "$@"
	echo 4 >"$(at svc slots)"
	verified a --size=2m --numjobs=2 --offset_increment=8m --bssplit=4k/50:128k/50
	verified a --ioengine=io_uring --size=2m
	balanced a
}

polled() {
	setup fairshare poll_queues=1
	verified a --ioengine=io_uring --hipri=1 --size=1m
	echo 1 >"$(at svc slots)"
	verified a --ioengine=io_uring --hipri=1 --size=1m
	balanced a
}

# Verifies that requests of an io_uring helper thread have their owner's identity.
io_wq() {
	setup 'fairshare uid_fair'
	verified a --ioengine=io_uring --force_async=1 --uid=1234 --size=1m
	grep -q 'uid:1234' "$(at svc nrs_fairshare_stats)" ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
}

dm_only try 30 "requests that must not block" nowait
try 30 "fewer tags than slots" few_tags
long try 30 "completion in a hard interrupt" completions irqmode=2 completion_nsec=100000
long try 30 "completion in a soft interrupt" completions irqmode=1
long try 30 "completion by the submitter" completions irqmode=0
dm_only long try 30 "bio-based disk" completions queue_mode=0
long try 30 "polled queues" polled
try 30 "io_uring's helper threads" io_wq
summary
