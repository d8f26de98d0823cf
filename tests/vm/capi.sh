#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# capi: other kernel modules submit requests (include/nrs.h): a framework that drives policies under
# a spinlock, and a server.
. /tests/nrs.sh

run=/sys/module/nrs_capi_test/parameters/run

# setup: Loads both modules.
setup() {
	module
	[ -d /sys/module/nrs_capi_test ] || insmod /nrs_capi_test.ko
}

# play TEXT...: Lets the module run a test; prints the failures from the kernel log.
play() {
	local before status=0
	before=$(dmesg | wc -l)
	echo "$*" >"$run" || status=$?
	dmesg | tail -n +$((before + 1)) | grep -o 'nrs_capi_test:.*' || true
	return $status
}

# unload: Unloads the test module, so that nrs can be unloaded.
unload() {
	rmmod nrs_capi_test
}

# policies COUNT: Runs each policy in turn while requests are queued; rates change, so that
# throttled classes are woken.
policies() {
	setup
	local steps=(
		fifo 'fairshare uid_fair' '!nrs_fairshare_slice_kib 64' 'tbf uid'
		'!nrs_tbf_rule start slow uid={1000} rate=50'
		'!nrs_tbf_rule change slow rate=1000000' qbm orr 'fairshare uid_then_jobid_fair'
		'!nrs_fairshare_mode jobid_fair'
		crrn trr 'tbf jobid' '!nrs_delay_min 0' '!nrs_delay_max 1' delay - 'fairshare uid_fair'
	)
	play "framework $1 $(IFS=';' && echo "${steps[*]}")"
	unload
}

refusals() {
	setup
	play refusals
	# A service that an administrator made keeps its number of partitions, and outlives its clients.
	mkdir /sys/kernel/config/nrs/capi
	echo 1 >/sys/kernel/config/nrs/capi/cpts
	if play "framework 100 fifo"; then fail "two partitions of one"; fi
	rmdir /sys/kernel/config/nrs/capi
	mkdir /sys/kernel/config/nrs/capi
	echo 2 >/sys/kernel/config/nrs/capi/cpts
	play "framework 100 fifo"
	rmdir /sys/kernel/config/nrs/capi
	unload
}

# Verifies that a started policy holds its module, and that this module holds nrs.
in_use() {
	setup
	play hold
	expect_errno EBUSY "/sys/kernel/debug/nrs/capi-hold/nrs_policies" fifo
	grep -A 1 'name: fairshare uid_fair' /sys/kernel/debug/nrs/capi-hold/nrs_policies |
		grep -q 'state: started'
	if rmmod nrs_capi_test; then fail "a module with a started policy was unloaded"; fi
	if rmmod nrs; then fail "nrs was unloaded"; fi
	play release
	unload
}

# server COUNT: Runs a server with more requests than slots, by uid.
server() {
	setup
	mkdir /sys/kernel/config/nrs/capi-server
	echo 4 >/sys/kernel/debug/nrs/capi-server/slots
	policy capi-server 'fairshare uid_fair'
	echo 5 >/sys/kernel/debug/nrs/capi-server/at_min
	play "server $1"
	unload
}

# Runs the example module of the guide.
example() {
	local i module=/sys/module/nrs_example
	module
	mkdir /sys/kernel/config/nrs/example
	policy example 'tbf uid'
	insmod /nrs_example.ko
	for i in {1..20}; do echo 1000 >$module/parameters/request; done
	expect_errno EINVAL $module/parameters/request nobody
	rmmod nrs_example
}

try 60 "each policy in turn, under a spinlock" policies "$(brief 5000 100000)"
try 20 "refused calls" refusals
try 20 "a started policy holds its module" in_use
try 120 "a server with its own threads" server "$(brief 3000 "$(slow 100000 20000)")"
try 20 "the example of the guide" example
remarks '^nrs_capi_test: [0-9]'
summary
