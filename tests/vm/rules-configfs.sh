#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Rules of tbf in configfs: nrs/SERVICE/rules/NAME is the rule of the same name in nrs_tbf_rule.
. /tests/nrs.sh

top=/sys/kernel/config/nrs
dir=$top/svc/rules

# service [POLICY]: Creates a service without clients, by default with tbf by uid on both heads.
service() {
	module
	mkdir $top/svc
	policy svc "${1:-tbf uid}"
}

# rules: Sets $lines to the lines of nrs_tbf_rule, none without tbf. Neither this function nor its
# callers start a process.
rules() {
	lines=()
	mapfile -t lines </sys/kernel/debug/nrs/svc/nrs_tbf_rule || true
}

# is NAME LINE [regular|high]: Verifies the rule's line without "ref", on that head or on both; an
# empty LINE means no rule.
is() {
	local line section='' found='' lines
	rules
	for line in "${lines[@]}"; do
		case $line in
		*_requests:) section=${line%%_*} ;;
		"$1 "*)
			line=${line%, ref *}
			if [ "${3:-$section}" = "$section" ] && [ "$line" != "$found" ]; then found+=$line; fi
			;;
		esac
	done
	[ "$found" = "$2" ] || fail "rule $1 is '$found', not '$2': ${lines[*]}"
}

# names WANTED: Verifies the names of the regular head's rules, in order.
names() {
	local line section='' found='' lines
	rules
	for line in "${lines[@]}"; do
		case $line in
		*_requests:) section=$line ;;
		CPT*) ;;
		*) [ "$section" != regular_requests: ] || found+="${line%% *} " ;;
		esac
	done
	[ "$found" = "$1 " ] || fail "rules are '$found', not '$1'"
}

# put NAME ATTRIBUTE VALUE: Sets an attribute.
put() {
	echo "$3" >"$dir/$1/$2" || fail "$1/$2 = '$3' refused"
}

# has NAME ATTRIBUTE VALUE: Verifies an attribute.
has() {
	local is
	read -r is <"$dir/$1/$2"
	[ "$is" = "$3" ] || fail "$1/$2 is '$is', not '$3'"
}

# made NAME MATCH [ATTRIBUTE=VALUE...]: Creates a rule's directory; enabled=1 at the end starts the
# rule.
made() {
	local name=$1 pair
	mkdir "$dir/$name"
	put "$name" match "$2"
	shift 2
	for pair; do put "$name" "${pair%%=*}" "${pair#*=}"; done
}

# mode FILE: Prints the file's mode.
mode() {
	stat -c %a "$1"
}

directories() {
	module
	mkdir $top/svc
	[ -d $dir ] || fail "no rules in a new service"
	[ "$(ls $top/svc | tr '\n' ' ')" = "cpts rules slots state " ] || fail "$(ls $top/svc)"
	refused EPERM rmdir $dir
	refused EPERM mkdir $top/svc/rule
	[ "$(mode $top/svc/state)" = 440 ] || fail "state: $(mode $top/svc/state)"
	[ "$(mode $top/svc/cpts)" = 660 ] || fail "cpts: $(mode $top/svc/cpts)"
	mkdir $dir/one $dir/fifteen_letters $dir/A_9
	[ "$(ls $dir/one | tr '\n' ' ')" = \
		"also borrow burst enabled head match minrate rank rate realtime " ] ||
		fail "$(ls $dir/one)"
	refused EACCES setpriv --reuid 1000 --regid 1000 --clear-groups cat $dir/one/rate
	refused ENAMETOOLONG mkdir $dir/sixteen_letters_
	refused EINVAL mkdir "$dir/a+b"
	refused EEXIST mkdir $dir/default
	refused EEXIST mkdir $dir/one
	refused EPERM mkdir $dir/one/two
	refused ENOTEMPTY rmdir $top/svc
	# A second service has its own rules.
	mkdir $top/other
	mkdir $top/other/rules/one
	rmdir $top/other/rules/one $top/other
	refused EBUSY rmmod nrs
	rmdir $dir/*
	rmdir $top/svc
	rmmod nrs
}

life() {
	service fifo
	mkdir $dir/r
	has r match ''
	has r head all
	has r rate ''
	has r minrate 0
	has r rank ''
	has r realtime 0
	has r borrow 0
	has r also ''
	has r enabled 0
	put r enabled 0
	expect_errno EINVAL $dir/r/enabled 1
	put r match ' uid={1000 1001} '
	has r match 'uid={1000 1001}'
	# tbf is required.
	expect_errno EINVAL $dir/r/enabled 1
	has r enabled 0
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rate 123
	put r enabled 1
	has r enabled 1
	put r enabled 1
	is r 'r uid={1000 1001} 123' regular
	is r 'r uid={1000 1001} 123' high
	has r rate 123
	# Changes take effect on the rule.
	put r rate 200MiB/s
	is r 'r uid={1000 1001} 200MiB/s'
	put r rate 5000iops
	put r minrate 20iops
	has r minrate 20iops
	put r realtime 5
	has r realtime 1
	put r borrow 1
	# A refused change has no effect.
	expect_errno EINVAL $dir/r/rate 0
	expect_errno EINVAL $dir/r/rate ''
	expect_errno EINVAL $dir/r/rate 10iops
	expect_errno EINVAL $dir/r/minrate 6000iops
	expect_errno ENOENT $dir/r/rank nosuch
	expect_errno ENOENT $dir/r/also nosuch
	expect_errno EBUSY $dir/r/match '{1}'
	expect_errno EBUSY $dir/r/match 'uid={1000 1001}'
	expect_errno EBUSY $dir/r/head reg
	is r 'r uid={1000 1001} 5000iops minrate=20iops realtime=1 borrow=1'
	has r rate 5000iops
	has r minrate 20iops
	has r rank ''
	has r also ''
	has r match 'uid={1000 1001}'
	has r head all
	# Commands change the same rule.
	set_to svc nrs_tbf_rule 'change r rate=77iops minrate=0 borrow=0'
	has r rate 77iops
	has r minrate 0
	has r realtime 1
	has r borrow 0
	set_to svc nrs_tbf_rule 'stop r'
	has r enabled 0
	has r rate 5000iops
	put r enabled 1
	is r 'r uid={1000 1001} 5000iops minrate=20iops realtime=1 borrow=1'
	has r minrate 20iops
	put r enabled 0
	is r ''
	has r enabled 0
	put r enabled 1
	# Without tbf the rule does not exist, and starting tbf does not recreate it.
	policy svc fifo
	has r enabled 0
	put r rate 88
	expect_errno EINVAL $dir/r/enabled 1
	policy svc 'tbf uid'
	has r enabled 0
	is r ''
	put r minrate 0
	put r enabled 1
	is r 'r uid={1000 1001} 88 realtime=1 borrow=1'
	rmdir $dir/r
	is r ''
	# A rule started by a command has no directory, and cannot get one until it is stopped.
	set_to svc nrs_tbf_rule 'hp start d {7} rate=7'
	refused EEXIST mkdir $dir/d
	set_to svc nrs_tbf_rule 'stop d'
	mkdir $dir/d
	set_to svc nrs_tbf_rule 'hp start d {7} rate=7'
	has d enabled 1
	has d match 'uid={7}'
	has d rate 7
	rmdir $dir/d
	is d ''
}

heads() {
	service
	made r '{1}' rate=10 head=reg enabled=1
	made h '{2}' rate=20 head=hp enabled=1
	is r 'r uid={1} 10' regular
	is r '' high
	is h '' regular
	is h 'h uid={2} 20' high
	put h rate 21
	is h 'h uid={2} 21' high
	# A rule of this name on the other head is a different rule.
	set_to svc nrs_tbf_rule 'hp start r {3} rate=30'
	put r enabled 0
	is r '' regular
	is r 'r uid={3} 30' high
	has r enabled 0
	put r head hp
	has r enabled 1
	has r match 'uid={3}'
	has r rate 30
	put r enabled 0
	is r ''
	put r match '{4}'
	put r head all
	put r enabled 1
	is r 'r uid={4} 10'
	policy svc 'fifo reg'
	has r enabled 1
	is r '' regular
	policy svc fifo
	has r enabled 0
}

order() {
	service
	made a '{1}' rate=10 enabled=1
	made b '{2}' rate=10 enabled=1
	names 'b a default'
	made c '{3}' rate=10 rank=a enabled=1
	names 'b c a default'
	put b rank default
	has b rank default
	names 'c a b default'
	put b rank ''
	has b rank ''
	names 'c a b default'
	# Limits of other rules.
	put c also a+b
	has c also a+b
	expect_errno EINVAL $dir/c/also a+c
	expect_errno ENOENT $dir/c/also a+d
	has c also a+b
	put c also b
	has c also b
	expect_errno EBUSY $dir/b/enabled 0
	has b enabled 1
	# A directory cannot refuse its removal: its rule remains, which is logged.
	rmdir $dir/b
	is b 'b uid={2} 10'
	dmesg | tail -n 5 | grep -q 'svc: rule b is active without its directory' || fail "not logged"
	refused EEXIST mkdir $dir/b
	put c also ''
	has c also ''
	set_to svc nrs_tbf_rule 'stop b'
	mkdir $dir/b
	# Attributes written before the start take effect, too.
	made e '{5}' rate=3MiB/s minrate=1MiB/s realtime=1 borrow=1 also=c+a rank=c enabled=1
	is e 'e uid={5} 3MiB/s minrate=1MiB/s realtime=1 borrow=1 also=c+a'
	has e minrate 1MiB/s
	has e realtime 1
	has e borrow 1
	has e also c+a
	names 'e c a default'
}

# Verifies that a change of the number of partitions recreates the service: its rules are drafts
# again.
recreated() {
	service
	made r '{1}' rate=10 enabled=1
	local other=1
	[ "$(cat $top/svc/cpts)" != 1 ] || other=2
	echo $other >$top/svc/cpts
	has r enabled 0
	has r rate 10
	expect_errno EINVAL $dir/r/enabled 1
	policy svc 'tbf uid'
	put r enabled 1
	is r 'r uid={1} 10'
	rmdir $dir/r
	is r ''
	rmdir $top/svc
}

# churn NAME: Creates, starts, changes and removes a rule until /tmp/stop exists, concurrently with
# others.
churn() {
	set +eE
	trap - ERR
	while [ ! -e /tmp/stop ]; do
		mkdir "$dir/$1" || { echo "stop $1" >"$(at svc nrs_tbf_rule)" && continue; }
		echo "{$((RANDOM % 100))}" >"$dir/$1/match"
		echo 100000 >"$dir/$1/rate"
		echo 1 >"$dir/$1/enabled"
		echo 200000 >"$dir/$1/rate"
		cat "$dir/$1"/* "$(at svc nrs_tbf_rule)"
		rmdir "$dir/$1"
		echo >>"/tmp/rounds-$1"
	done >/dev/null 2>&1
}

# commands: Changes the same rules by commands.
commands() {
	set +eE
	trap - ERR
	while [ ! -e /tmp/stop ]; do
		echo 'start one {5} rate=100000' >"$(at svc nrs_tbf_rule)"
		echo 'change two rate=300000' >"$(at svc nrs_tbf_rule)"
		echo 'stop three' >"$(at svc nrs_tbf_rule)"
		sleep 0.05
	done 2>/dev/null
}

# types: Starts and stops tbf.
types() {
	local type
	set +eE
	trap - ERR
	while [ ! -e /tmp/stop ]; do
		for type in fifo 'tbf uid' 'tbf hp gid' 'tbf uid'; do
			echo "$type" >"$(at svc nrs_policies)"
			sleep 0.2
		done
	done 2>/dev/null
}

# services: Creates and removes a service with a rule.
services() {
	while [ ! -e /tmp/stop ]; do
		mkdir $top/short
		mkdir $top/short/rules/x
		rmdir $top/short/rules/x
		rmdir $top/short
	done
	touch /tmp/services
}

storm() {
	local name least
	service
	lower nb0
	client a /dev/nb0 svc
	rm -f /tmp/stop /tmp/services
	for name in one two three; do : >/tmp/rounds-$name && churn $name & done
	commands &
	types &
	services &
	sleep 8
	least=$(slow 5 3)
	for name in one two three; do
		wait_for 60 "[ \$(wc -l </tmp/rounds-$name) -ge $least ]" ||
			{ touch /tmp/stop; fail "$name has done $(wc -l </tmp/rounds-$name) rounds"; }
	done
	touch /tmp/stop
	wait
	[ -e /tmp/services ] || fail "a service could not be made or removed"
	say "rounds: $(wc -l /tmp/rounds-* | tr '\n' ' ')"
	# Nothing is left behind, and rules still work.
	for name in one two three; do [ ! -d $dir/$name ] || rmdir $dir/$name; done
	policy svc fifo
	policy svc 'tbf uid'
	names 'default'
	made one '{1}' rate=10 enabled=1
	is one 'one uid={1} 10'
}

long try 40 "directories of rules and their names" directories
try 60 "a rule from its directory, and by commands" life
long try 40 "heads" heads
long try 40 "rank and also" order
long try 40 "a changed number of partitions" recreated
long try 90 "concurrent commands and directories" storm
summary
