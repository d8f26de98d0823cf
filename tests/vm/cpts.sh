#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Services made in configfs, with more than one partition.
. /tests/nrs.sh

dir=/sys/kernel/config/nrs

# make NAME CPTS SLOTS
make() {
	module
	mkdir $dir/"$1"
	echo "$2" >$dir/"$1"/cpts
	echo "$3" >$dir/"$1"/slots
}

# One slot for two partitions, and work on the second one only.
one_sided() {
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=200000
	make svc 2 1
	client a /dev/nb0 svc
	policy svc "$1"
	verified a --size=2m --cpus_allowed=1 --iodepth=16
	[ "$(counter a queued)" -ge 200 ] || fail "hardly anything waited: $(dm status a)"
	verified a --size=2m --cpus_allowed=0 --iodepth=16
	[ "$(counter a held)" = 0 ]
}

# Work on both: they take turns.
both() {
	slow_lower nb0 2000000
	make svc 2 1
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	policy svc "$1"
	load a --cpus_allowed=0 --time_based --runtime=60 >/dev/null 2>&1 &
	load b --cpus_allowed=1 --time_based --runtime=60 >/dev/null 2>&1 &
	saturated a b
	local a b
	read -r a b <<<"$(window 3 ended a b)"
	say "ended in 3 s: $a and $b"
	[ "$a" -gt 50 ] && [ "$b" -gt 50 ] && within 25 "$a" "$b"
}

# Attributes show and take values, and refuse what is wrong.
attributes() {
	make svc 2 5
	[ "$(cat $dir/svc/cpts)" = 2 ] && [ "$(cat $dir/svc/slots)" = 5 ] && [ "$(cat $dir/svc/state)" = idle ]
	[ "$(cat "$(at svc slots)")" = 5 ]
	# Parameters outlive a change of the number of partitions.
	set_to svc nrs_fairshare_delta_ms 20
	echo 1 >$dir/svc/cpts
	[ "$(cat $dir/svc/slots)" = 5 ] && [ "$(cat "$(at svc nrs_fairshare_delta_ms)")" = 20 ]
	local value
	for value in 0 65 -1 x; do expect_errno EINVAL $dir/svc/cpts "$value"; done
	for value in 0 65536 -1 x; do expect_errno EINVAL $dir/svc/slots "$value"; done
	[ "$(cat $dir/svc/cpts)" = 1 ] && [ "$(cat $dir/svc/slots)" = 5 ]
	rmdir $dir/svc
	[ ! -d /sys/kernel/debug/nrs/svc ]
}

# A service in use stays, with its number of partitions.
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
	# Still there, and as it was.
	[ "$(cat $dir/svc/state)" = idle ] && [ "$(cat $dir/svc/slots)" = 6 ] && [ -d /sys/kernel/debug/nrs/svc ]
	echo 1 >$dir/svc/cpts
	client a /dev/nb0 svc
	dm_remove a
	rmdir $dir/svc
}

# A service that its first client made has no directory and cannot get one; it goes with its last client.
automatic() {
	module
	lower nb0
	client a /dev/nb0 auto
	[ ! -d $dir/auto ] && [ -d /sys/kernel/debug/nrs/auto ]
	refused EEXIST mkdir $dir/auto
	dm_remove a
	[ ! -d /sys/kernel/debug/nrs/auto ]
	mkdir $dir/auto
	rmdir $dir/auto
	local name
	for name in .hidden "$(printf 'x%.0s' $(seq 32))" 'a b' 'a"b' é; do
		refused EINVAL mkdir "$dir/$name"
	done
}

# Directories come and go while clients do: none is lost, none stays.
races() {
	module
	lower nb0
	(for _ in $(seq "$1"); do
		mkdir $dir/svc 2>/dev/null || true
		rmdir $dir/svc 2>/dev/null || true
	done) &
	local maker=$!
	local i
	for i in $(seq "$1"); do
		dm create a --table "0 2048 nrs /dev/nb0 0 svc" || fail "round $i"
		dm remove a
	done
	wait "$maker"
	[ ! -d $dir/svc ] || rmdir $dir/svc
	[ ! -d /sys/kernel/debug/nrs/svc ]
	rmmod nrs
}

for name in fifo fairshare; do
	try 30 "$name, 2 partitions, 1 slot, work on one CPU only" one_sided "$name"
	try 30 "$name, 2 partitions, 1 slot, both CPUs progress" both "$name"
done
try 20 "attributes" attributes
try 20 "a configured service in use" in_use
try 20 "a service that its client made" automatic
try 40 "directories and clients come and go together" races "$(slow 40 15)"
summary
