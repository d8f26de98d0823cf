#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Loading and unloading: many times, with parameters, and refused while the module is in use.
. /tests/nrs.sh

parameters=/sys/module/nrs/parameters

# cycles N: Loads and unloads N times, every tenth time with a busy device.
cycles() {
	lower nb0 memory_backed=1
	for i in $(seq "$1"); do
		load_nrs
		if [ $((i % 10)) = 1 ]; then
			client a /dev/nb0 svc
			policy svc fairshare
			load a --io_size=256k >/dev/null
			[ "$(counter a ended)" -ge 64 ] || fail "round $i: $(status)"
			remove_client a
		fi
		rmmod nrs
		[ ! -d /sys/module/nrs ] && [ ! -d /sys/kernel/debug/nrs ] &&
			[ ! -d /sys/kernel/config/nrs ] ||
			fail "round $i: something is left"
	done
}

see_parameters() {
	if [ -d /sys/module/nrs ]; then rmmod nrs; fi
	load_nrs
	[ "$(cat $parameters/default_slots)" = auto ]
	[ "$(cat $parameters/classes_max)" = 16384 ]
	local value
	for value in 0 65536 -1 x ''; do expect_errno EINVAL $parameters/default_slots "$value"; done
	for value in 0 63 1048577 -1 x ''; do expect_errno EINVAL $parameters/classes_max "$value"; done
	[ "$(cat $parameters/default_slots)" = auto ]
	[ "$(cat $parameters/classes_max)" = 16384 ]
	# A change applies to services created later.
	lower nb0
	lower nb1
	client a /dev/nb0 before
	echo 20 >$parameters/default_slots
	client b /dev/nb1 after
	[ "$(cat "$(at before slots)")" = auto ]
	[ "$(cat "$(at after slots)")" = 20 ]
	echo auto >$parameters/default_slots
	[ "$(cat $parameters/default_slots)" = auto ]
	remove_client a
	remove_client b
	rmmod nrs
}

given_parameters() {
	if [ -d /sys/module/nrs ]; then rmmod nrs; fi
	local bad
	for bad in default_slots=0 default_slots=65536 default_slots=x classes_max=1; do
		if load_nrs "$bad" 2>/dev/null; then fail "loaded with $bad"; fi
		[ ! -d /sys/module/nrs ]
	done
	load_nrs default_slots=8 classes_max=64
	[ "$(cat $parameters/default_slots)" = 8 ]
	[ "$(cat $parameters/classes_max)" = 64 ]
	lower nb0
	client a /dev/nb0 svc
	[ "$(cat "$(at svc slots)")" = 8 ]
	dm_remove a
	rmmod nrs
}

# Verifies that a table holds the module: in use, suspended, or only loaded.
busy_table() {
	module
	lower nb0
	client a /dev/nb0 svc
	refused EBUSY rmmod nrs
	dm suspend a
	refused EBUSY rmmod nrs
	dm resume a
	dm_remove a
	dm create b --notable
	dm load b --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 svc"
	refused EBUSY rmmod nrs
	dm clear b
	rmmod nrs
	dm_remove b
}

# Verifies that an open file holds the module, and that reads fail after its service is removed.
open_file() {
	module
	lower nb0
	client a /dev/nb0 svc
	exec 5<"$(at svc nrs_policies)" 6>"$(at svc slots)"
	dm_remove a
	[ ! -d /sys/kernel/debug/nrs/svc ]
	refused EBUSY rmmod nrs
	if cat <&5 2>/dev/null; then fail "read of a removed file"; fi
	if echo 5 2>/dev/null >&6; then fail "write to a removed file"; fi
	exec 5<&- 6>&-
	rmmod nrs
}

busy_directory() {
	module
	mkdir /sys/kernel/config/nrs/svc
	refused EBUSY rmmod nrs
	rmdir /sys/kernel/config/nrs/svc
	rmmod nrs
}

if [ -d /sys/module/nrs ]; then rmmod nrs; fi
cycles=$(slow "$(brief 10 50)" "$(brief 5 10)")
try 90 "loads and unloads $cycles times" cycles "$cycles"
# The debug kernel runs the KUnit suites at each load, so it only runs the checks of memory errors.
[ -n "$debug" ] ||
	dm_only try 20 "parameters: shown, invalid values refused, effective for new services" \
		see_parameters
[ -n "$debug" ] || dm_only try 20 "parameters at load time" given_parameters
dm_only try 20 "rmmod is refused while a table exists" busy_table
dm_only debug_long try 20 "rmmod is refused while a control file is open" open_file
dm_only debug_long try 20 "rmmod is refused while a configured service exists" busy_directory
summary
