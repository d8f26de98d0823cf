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
	policy svc fairshare
	verified a --size=2m --cpus_allowed=1 --iodepth=16
	[ "$(counter a queued)" -ge 200 ] || fail "hardly anything waited: $(dm status a)"
	verified a --size=2m --cpus_allowed=0 --iodepth=16
	[ "$(counter a held)" = 0 ]
}

# Work on both: they take turns by the shares of their users; without shares the turns would be equal.
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

# shared MODE: a service with two partitions and 8 slots; devices a, b, c and d, each a job.
shared() {
	slow_lower nb0 4000000 size=1024
	make svc 2 8
	local name
	for name in a b c d; do client $name /dev/nb0 svc jobid job.$name; done
	policy svc "fairshare $1"
}

# begin DEVICE UID CPU [OPTION...]: a load that lasts until the check is over.
begin() {
	load "$1" as="$2" --cpus_allowed="$3" --time_based --runtime=120 "${@:4}" >/dev/null 2>&1 &
}

# compare SECONDS COUNTER DEVICE...: what they get in that time, in ${got[@]}; each had more to do at the end.
compare() {
	local name
	saturated "${@:3}"
	window 0.5 "$2" "${@:3}" >/dev/null
	read -ra got <<<"$(window "$@")"
	say "$2 in $1 s: ${got[*]}; CPUs busy $(cat /tmp/busy) %"
	for name in "${@:3}"; do [ "$(counter "$name" held)" -ge 2 ] || fail "a backlog ended: $(dm status)"; done
}

# One user on each CPU; what the second one gets elsewhere counts. Without that, each CPU is fair by itself.
one_each() {
	shared uid_fair
	local got
	begin a 1001 0
	begin b 1002 1
	compare 3 ended a b
	within 2 "${got[0]}" "${got[1]}" || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	# The first one on the second CPU as well, from there as many at a time: still the same.
	begin c 1001 1
	compare 3 ended a b c
	within 2 $((got[0] + got[2])) "${got[1]}" || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	set_to svc nrs_fairshare_cross_cpt 0
	compare 3 ended a b c
	more 1.5 $((got[0] + got[2])) "${got[1]}" || fail "cross_cpt 0 makes no difference"
	set_to svc nrs_fairshare_cross_cpt 1
	compare 3 ended a b c
	within 2 $((got[0] + got[2])) "${got[1]}" || fail "$(cat "$(at svc nrs_fairshare_stats)")"
}

# What one partition withholds keeps the other from nothing, and is served when its time comes.
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

# Attributes show and take values.
attributes() {
	make svc 2 5
	[ "$(cat $dir/svc/cpts)" = 2 ]
	[ "$(cat $dir/svc/slots)" = 5 ]
	[ "$(cat $dir/svc/state)" = idle ]
	[ "$(cat "$(at svc slots)")" = 5 ]
	# Parameters outlive a change of the number of partitions.
	set_to svc nrs_fairshare_delta_ms 20
	echo 1 >$dir/svc/cpts
	[ "$(cat $dir/svc/slots)" = 5 ]
	[ "$(cat "$(at svc nrs_fairshare_delta_ms)")" = 20 ]
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
	[ "$(cat $dir/svc/state)" = idle ]
	[ "$(cat $dir/svc/slots)" = 6 ]
	[ -d /sys/kernel/debug/nrs/svc ]
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
	[ ! -d $dir/auto ]
	[ -d /sys/kernel/debug/nrs/auto ]
	refused EEXIST mkdir $dir/auto
	dm_remove a
	[ ! -d /sys/kernel/debug/nrs/auto ]
	mkdir $dir/auto
	rmdir $dir/auto
	refused EINVAL mkdir $dir/.hidden
}

# Directories come and go while clients do: none is lost, none stays.
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

# What is set while the number of partitions changes is kept.
set_meanwhile() {
	module
	mkdir $dir/svc
	(for i in $(seq "$1"); do
		echo $((1 + i % 2)) >$dir/svc/cpts
	done) &
	local maker=$! value=1 file=/sys/kernel/debug/nrs/svc/slots shown
	while kill -0 "$maker" 2>/dev/null; do
		value=$((value % 1000 + 1))
		# The file is another one each time, and not there in between.
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

long try 30 "2 partitions, 1 slot, work on one CPU only" one_sided
long try 30 "2 partitions, 1 slot, both CPUs progress" both
long try 30 "tbf, 2 partitions, one of them withholds" withheld
# The checkers of the debug kernel take the time that shares need.
if [ -z "$debug" ]; then
	long try 60 "one user on each CPU: half each within 2 %" one_each
fi
try 20 "attributes" attributes
try 20 "a configured service in use" in_use
try 20 "a service that its client made" automatic
long try 40 "directories and clients come and go together" races "$(slow 40 15)"
try 30 "what is set while partitions come and go" set_meanwhile "$(slow 100 30)"
remarks '^(ended in|bytes in)'
summary
