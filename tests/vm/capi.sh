#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# capi: other kernel modules submit requests (include/nrs.h): a server, and a framework. The test
# lustre has a framework under load.
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

# Runs each policy, and starts the next one while requests are queued.
policies() {
	setup
	play policies
	unload
}

refusals() {
	setup
	play refusals
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

try 20 "each policy in turn, under a spinlock" policies
try 20 "refused calls" refusals
try 20 "a started policy holds its module" in_use
try 120 "a server with its own threads" server "$(brief 3000 "$(slow 100000 20000)")"
try 20 "the example of the guide" example
remarks '^nrs_capi_test: [0-9]'
summary
