#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Services made in configfs, with more than one partition.
. /tests/nrs.sh

dir=/sys/kernel/config/nrs

# make NAME CPTS SLOTS: Creates a service.
make() {
	module
	mkdir $dir/"$1"
	echo "$2" >$dir/"$1"/cpts
	echo "$3" >$dir/"$1"/slots
}

# Verifies progress with one slot for two partitions, and load on the second partition only.
one_sided() {
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=200000
	make svc 2 1
	client a /dev/nb0 svc
	policy svc fairshare
	verified a --size=2m --cpus_allowed=1 --iodepth=16
	[ "$(counter a queued)" -ge 200 ] || fail "few requests were queued: $(dm status a)"
	verified a --size=2m --cpus_allowed=0 --iodepth=16
	[ "$(counter a held)" = 0 ]
}

# Verifies that two loaded partitions share one slot by the shares of their users, not in equal
# turns.
both() {
	slow_lower nb0 2000000
	make svc 2 1
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	policy svc "fairshare uid_fair"
	set_to svc nrs_fairshare_weights 'uid:1001:3'
	begin a 1001 0
	begin b 1002 1
	saturated a b
	local a b
	window 0.5 ended a b >/dev/null
	read -r a b <<<"$(window 3 ended a b)"
	say "ended in 3 s: $a and $b"
	[ "$b" -gt 50 ]
	within 10 "$a" $((3 * b))
}

# shared MODE: Creates a service with two partitions and 8 slots, and the devices a, b, c and d,
# each with its own job.
shared() {
	slow_lower nb0 4000000 size=1024
	make svc 2 8
	local name
	for name in a b c d; do client $name /dev/nb0 svc jobid job.$name; done
	policy svc "fairshare $1"
}

# begin DEVICE UID CPU [OPTION...]: Starts a load that runs until the check ends.
begin() {
	load "$1" as="$2" --cpus_allowed="$3" --time_based --runtime=120 "${@:4}" >/dev/null 2>&1 &
}

# compare SECONDS COUNTER DEVICE...: Sets ${got[@]} to the counts of that time; each device must
# still have a backlog at its end.
compare() {
	local name
	saturated "${@:3}"
	window 0.5 "$2" "${@:3}" >/dev/null
	read -ra got <<<"$(window "$@")"
	say "$2 in $1 s: ${got[*]}; CPUs busy $(cat /tmp/busy) %"
	for name in "${@:3}"; do
		[ "$(counter "$name" held)" -ge 2 ] || fail "a backlog ended: $(dm status)"
	done
}

# Verifies fair shares of a user on each CPU, which include usage on the other CPU. Without
# nrs_fairshare_cross_cpt each CPU is fair by itself.
one_each() {
	shared uid_fair
	local got
	begin a 1001 0
	begin b 1002 1
	compare 3 ended a b
	within 2 "${got[0]}" "${got[1]}" || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	# The first user also runs on the second CPU, with the same depth: the shares remain equal.
	begin c 1001 1
	compare 3 ended a b c
	within 2 $((got[0] + got[2])) "${got[1]}" || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	[ -n "${NRS_LONG:-}" ] || return 0
	set_to svc nrs_fairshare_cross_cpt 0
	compare 3 ended a b c
	more 1.5 $((got[0] + got[2])) "${got[1]}" || fail "cross_cpt 0 makes no difference"
	set_to svc nrs_fairshare_cross_cpt 1
	compare 3 ended a b c
	within 2 $((got[0] + got[2])) "${got[1]}" || fail "$(cat "$(at svc nrs_fairshare_stats)")"
}

# Verifies that one partition's throttled requests do not delay the other partition, and are
# dispatched on time.
withheld() {
	slow_lower nb0 2000000
	make svc 2 3
	client a /dev/nb0 svc nid 10.0.0.1@tcp
	client b /dev/nb0 svc nid 10.0.0.2@tcp
	policy svc 'tbf nid'
	set_to svc nrs_tbf_rule 'start slow nid={10.0.0.1@tcp} rate=20'
	load a --cpus_allowed=0 --time_based --runtime=60 >/dev/null 2>&1 &
	load b --cpus_allowed=1 --time_based --runtime=60 >/dev/null 2>&1 &
	saturated a b
	local a b
	read -r a b <<<"$(window 4 ended a b)"
	say "ended in 4 s: $a and $b"
	within 25 "$a" 80 && [ "$b" -ge 1500 ]
}

# Verifies that attributes can be read and written.
attributes() {
	make svc 2 5
	[ "$(cat $dir/svc/cpts)" = 2 ]
	[ "$(cat $dir/svc/slots)" = 5 ]
	[ "$(cat $dir/svc/state)" = idle ]
	[ "$(cat "$(at svc slots)")" = 5 ]
	# Parameters survive a change of the number of partitions.
	set_to svc nrs_fairshare_delta_ms 20
	echo 1 >$dir/svc/cpts
	[ "$(cat $dir/svc/slots)" = 5 ]
	[ "$(cat "$(at svc nrs_fairshare_delta_ms)")" = 20 ]
	rmdir $dir/svc
	[ ! -d /sys/kernel/debug/nrs/svc ]
}

# Verifies that a service in use cannot be removed, and keeps its number of partitions.
in_use() {
	lower nb0
	lower nb1
	make svc 2 5
	client a /dev/nb0 svc
	[ "$(cat $dir/svc/state)" = 'in use 1' ]
	client b /dev/nb1 svc
	[ "$(cat $dir/svc/state)" = 'in use 2' ]
	refused EBUSY rmdir $dir/svc
	expect_errno EBUSY $dir/svc/cpts 1
	echo 6 >$dir/svc/slots
	[ "$(cat "$(at svc slots)")" = 6 ]
	refused EEXIST mkdir $dir/svc
	load a --io_size=64k >/dev/null
	dm_remove a
	refused EBUSY rmdir $dir/svc
	dm_remove b
	# The service still exists, with its settings.
	[ "$(cat $dir/svc/state)" = idle ]
	[ "$(cat $dir/svc/slots)" = 6 ]
	[ -d /sys/kernel/debug/nrs/svc ]
	echo 1 >$dir/svc/cpts
	client a /dev/nb0 svc
	dm_remove a
	rmdir $dir/svc
}

# Verifies that a service created by its first client has no directory and cannot get one; it is
# removed with its last client.
automatic() {
	module
	lower nb0
	client a /dev/nb0 auto
	[ ! -d $dir/auto ]
	[ -d /sys/kernel/debug/nrs/auto ]
	refused EEXIST mkdir $dir/auto
	dm_remove a
	[ ! -d /sys/kernel/debug/nrs/auto ]
	mkdir $dir/auto
	rmdir $dir/auto
	refused EINVAL mkdir $dir/.hidden
}

# Creates and removes directories while clients join and leave: no client fails, and nothing
# remains.
races() {
	module
	lower nb0
	lower nb1
	(for _ in $(seq "$1"); do
		mkdir $dir/svc 2>/dev/null || true
		rmdir $dir/svc 2>/dev/null || true
	done) &
	local maker=$!
	(for _ in $(seq "$1"); do
		dm create b --table "0 2048 nrs /dev/nb1 0 svc" && dm remove b || exit 1
	done) &
	local other=$!
	local i
	for i in $(seq "$1"); do
		dm create a --table "0 2048 nrs /dev/nb0 0 svc" || fail "round $i"
		dm remove a
	done
	wait "$maker"
	wait "$other" || fail "the other client"
	[ ! -d $dir/svc ] || rmdir $dir/svc
	[ ! -d /sys/kernel/debug/nrs/svc ]
	rmmod nrs
}

# Verifies that a value set while the number of partitions changes is kept.
set_meanwhile() {
	module
	mkdir $dir/svc
	(for i in $(seq "$1"); do
		echo $((1 + i % 2)) >$dir/svc/cpts
	done) &
	local maker=$! value=1 file=/sys/kernel/debug/nrs/svc/slots shown
	while kill -0 "$maker" 2>/dev/null; do
		value=$((value % 1000 + 1))
		# Each change recreates the file, which is missing in between.
		(echo $value >$file) 2>/dev/null || continue
		until shown=$(cat $file 2>/dev/null) && [ -n "$shown" ]; do
			kill -0 "$maker" 2>/dev/null || [ -e $file ] || fail "no file"
		done
		[ "$shown" = $value ] || fail "$value was set, $shown is shown"
	done
	wait "$maker"
	rmdir $dir/svc
	rmmod nrs
}

long try 30 "2 partitions, 1 slot, load on one CPU only" one_sided
long try 30 "2 partitions, 1 slot, both CPUs progress" both
long try 30 "tbf, 2 partitions, one of them throttles" withheld
# The debug kernel's checkers take the CPU time that shares need.
if [ -z "$debug" ]; then
	try 60 "one user on each CPU: half each within 2 %" one_each
fi
try 20 "attributes" attributes
try 20 "a configured service in use" in_use
try 20 "a service created by its client" automatic
long try 40 "directories and clients are created and removed concurrently" races "$(slow 40 15)"
try 30 "values set while the number of partitions changes" set_meanwhile "$(slow 100 30)"
remarks '^(ended in|bytes in)'
summary
