#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# nrsctl top, record and plot with the module under load: two users on one device, one of them
# greedy with two jobs, first with shares, then with a limit. The recording and its pictures are
# kept in /out; those of Documentation are made from them.
. /tests/nrs.sh

slots=8
# Less than the other user leaves of the disk, so that the limit takes effect.
rule='start greedy uid={1002} rate=5MB/s'

# setup: Creates three devices on one disk, one service; each device names its job.
setup() {
	module
	slow_lower nb0 8000000 size=1024 memory_backed=0
	client small /dev/nb0 svc jobid small
	client large /dev/nb0 svc jobid large
	client medium /dev/nb0 svc jobid medium
	echo $slots >"$(at svc slots)"
}

# begin: Starts loads that run until the check ends.
begin() {
	load small as=1001 --bs=64k --iodepth=16 --time_based --runtime=200 >/dev/null 2>&1 &
	load large as=1002 --bs=64k --iodepth=32 --numjobs=3 --time_based \
		--runtime=200 >/dev/null 2>&1 &
	load medium as=1002 --bs=64k --iodepth=32 --time_based --runtime=200 >/dev/null 2>&1 &
	wait_for 30 '[ "$(pidof fio | wc -w)" -ge 5 ]' || fail "no loads"
}

# column FILE NAME COLUMN: Prints the value in the last table of FILE.
column() {
	awk -v name="$2" -v column="$3" \
		'$1 == "NAME" { for (i = 1; i <= NF; i++) if ($i == column) at = i }
			$1 == name { value = $at } END { print value }' "$1"
}

# between LOW HIGH VALUE: Verifies a value followed by a unit.
between() {
	awk -v low="$1" -v high="$2" -v value="$3" \
		'BEGIN { exit !(value != "-" && value != "" && value + 0 >= low && value + 0 <= high) }' ||
		fail "'$3' is not $1 to $2: $(cat /tmp/table)"
}

# Verifies tables of shares.
shares() {
	setup
	policy svc 'fairshare uid_then_jobid_fair'
	begin
	saturated small large medium
	nrsctl top svc --batch 3 --interval 2 --sort name >/tmp/table
	cat /tmp/table
	cp /tmp/table /out/shares.txt
	[ "$(grep -c ^NAME /tmp/table)" = 3 ]
	[ "$(grep -c '^uid:1001/jobid:small ' /tmp/table)" = 3 ]
	[ "$(grep -c '^uid:1002/jobid:large ' /tmp/table)" = 3 ]
	between 42 58 "$(column /tmp/table uid:1001/jobid:small GOT)"
	between 19 31 "$(column /tmp/table uid:1002/jobid:large GOT)"
	between 19 31 "$(column /tmp/table uid:1002/jobid:medium GOT)"
	[ "$(column /tmp/table uid:1001/jobid:small WANT)" = 50.0% ]
	[ "$(column /tmp/table uid:1002/jobid:large WANT)" = 25.0% ]
	# 8 slots at 8 ms allow 1000 requests per second.
	between 100 600 "$(column /tmp/table uid:1001/jobid:small REQ/S)"
	between 1 16 "$(column /tmp/table uid:1001/jobid:small QUEUE)"
	grep -q 'regular, high: fairshare uid_then_jobid_fair' /tmp/table
	grep -q ' of 8 used .* healthy$' /tmp/table
	# Filtered and sorted.
	nrsctl top svc --batch 1 --interval 0.5 --filter 1002/ --sort queued >/tmp/table
	[ "$(awk '/^uid/ { print $1 }' /tmp/table | tr '\n' ' ')" = \
		'uid:1002/jobid:large uid:1002/jobid:medium ' ] || fail "$(cat /tmp/table)"
}

# Verifies a recording over a change of policy, its pictures, and a table of the limit.
recorded() {
	setup
	policy svc 'fairshare uid_then_jobid_fair'
	begin
	saturated small large medium
	nrsctl record svc --interval 1 --for 24 --out /out/recording.jsonl >/tmp/said &
	local recorder=$!
	wait_for 60 '[ -s /out/recording.jsonl ] && [ "$(wc -l </out/recording.jsonl)" -ge 12 ]' ||
		fail "no 11 snapshots: $(wc -l /out/recording.jsonl)"
	policy svc 'tbf uid'
	echo "$rule" >"$(at svc nrs_tbf_rule)"
	wait "$recorder"
	grep -q '^25 snapshots in /out/recording.jsonl$' /tmp/said || fail "$(cat /tmp/said)"
	[ "$(wc -l </out/recording.jsonl)" = 26 ]
	[ "$(grep -c '^{"nrs_recording":1,' /out/recording.jsonl)" = 1 ]
	nrsctl top svc --batch 1 --interval 3 >/tmp/table
	cat /tmp/table
	cp /tmp/table /out/limits.txt
	[ "$(column /tmp/table uid:1002 LIMIT)" = 5MB/s ]
	case $(column /tmp/table uid:1002 B/S) in
	*M) between 3 5.3 "$(column /tmp/table uid:1002 B/S)" ;;
	*) fail "$(cat /tmp/table)" ;;
	esac
	between 1 1000 "$(column /tmp/table uid:1002 HIT/S)"
	local what
	for what in share rate wait queue limit; do
		nrsctl plot /out/recording.jsonl --what $what --out /out/$what.svg
		grep -q '</svg>' /out/$what.svg && grep -q "svc: $what of each entity" /out/$what.svg ||
			fail "$what.svg: $(head -c 300 /out/$what.svg)"
		grep -q 'tbf uid' /out/$what.svg
		grep -q uid:1002 /out/$what.svg
	done
	# Replays the recording.
	nrsctl top --from /out/recording.jsonl --batch 100 >/tmp/table
	[ "$(grep -c ^NAME /tmp/table)" = 24 ]
}

# Verifies a recording that a signal ends.
ended() {
	setup
	policy svc 'fairshare uid_fair'
	local signal recorder
	for signal in INT TERM; do
		nrsctl record --interval 0.2 --out /tmp/ended.jsonl &
		recorder=$!
		wait_for 20 '[ -e /tmp/ended.jsonl ] && [ "$(wc -l </tmp/ended.jsonl)" -ge 3 ]'
		kill -$signal $recorder
		wait $recorder || fail "SIG$signal: status $?"
		[ -z "$(tail -c 1 /tmp/ended.jsonl)" ] || fail "SIG$signal: no whole line at the end"
		rm /tmp/ended.jsonl
	done
}

# Unloads the module while top and record run.
unloaded() {
	setup
	policy svc 'fairshare uid_fair'
	load small as=1001 --number_ios=200 >/dev/null
	nrsctl top svc --batch 1000 --interval 0.2 >/tmp/table 2>/tmp/why &
	local watcher=$! recorder rc=0
	nrsctl record --interval 0.2 --out /tmp/gone.jsonl >/tmp/said 2>&1 &
	recorder=$!
	wait_for 20 \
		'[ "$(grep -c "^uid:1001 " /tmp/table)" -ge 2 ] && [ "$(wc -l </tmp/gone.jsonl)" -ge 3 ]'
	dm_remove small
	dm_remove large
	dm_remove medium
	wait_for 20 'grep -q "does not exist" /tmp/table' || fail "$(tail -n 3 /tmp/table)"
	rmmod nrs
	wait_for 20 'grep -q "is not loaded" /tmp/table' || fail "$(tail -n 3 /tmp/table)"
	wait $recorder || rc=$?
	[ $rc = 6 ] && grep -q 'not loaded .*snapshots are in /tmp/gone.jsonl' /tmp/said ||
		fail "record: status $rc: $(cat /tmp/said)"
	[ -z "$(tail -c 1 /tmp/gone.jsonl)" ]
	# The tables reappear with the module.
	module
	client small /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	load small as=1003 --number_ios=200 >/dev/null
	wait_for 20 'grep -q "^uid:1003 " /tmp/table' || fail "$(tail -n 3 /tmp/table)"
	kill $watcher
	wait $watcher || true
	if grep panicked /tmp/table /tmp/why; then fail "a panic"; fi
}

# screen ARG...: Runs nrsctl top on a terminal of 80 by 24, which busybox telnetd provides; input is
# written to descriptor 7, output goes to /tmp/screen. The exit status is in /tmp/status, and the
# terminal's settings before and after are in /tmp/before and /tmp/after.
screen() {
	ip link set lo up
	rm -f /tmp/status
	cat >/tmp/login <<-END
		#!/bin/bash
		stty rows 24 cols 80
		stty -a >/tmp/before
		TERM=linux nrsctl top $*
		echo \$? >/tmp/status.part
		stty -a >/tmp/after
		mv /tmp/status.part /tmp/status
	END
	chmod +x /tmp/login
	telnetd -F -b 127.0.0.1 -p 2323 -l /tmp/login &
	server=$!
	wait_for 20 'exec 7<>/dev/tcp/127.0.0.1/2323' 2>/dev/null || fail "no terminal"
	cat <&7 >/tmp/screen &
}

# shows WORD: Waits until the terminal has received WORD. Unchanged blanks are not sent again.
shows() {
	wait_for 20 "grep -aqF -- '$1' /tmp/screen" ||
		fail "no '$1': $(tr -c '[:print:]' ' ' </tmp/screen | tail -c 600)"
}

# Verifies the keys on a terminal.
interactive() {
	setup
	policy svc 'fairshare uid_then_jobid_fair'
	begin
	saturated small large medium
	local leave=$'\e[?1049l'
	screen svc --interval 0.5
	shows $'\e[?1049h'
	shows uid:1001/jobid:small
	shows uid_then_jobid_fair
	printf h >&7
	shows entity
	printf 'h/large\r' >&7
	shows 1-1
	printf p >&7
	shows paused
	printf pq >&7
	wait_for 20 '[ -e /tmp/status ]' || fail "q does not end it"
	[ "$(cat /tmp/status)" = 0 ]
	cmp /tmp/before /tmp/after
	shows "$leave"
	cp /tmp/screen /out/screen
	kill $server
	exec 7>&-
	# Ends by a signal; then by Ctrl-C.
	local how
	for how in TERM HUP key; do
		screen svc
		shows uid:1001/jobid:small
		case $how in key) printf '\003' >&7 ;; *) kill -$how "$(pidof nrsctl)" ;; esac
		wait_for 20 '[ -e /tmp/status ]' || fail "$how does not end it"
		[ "$(cat /tmp/status)" = 0 ]
		cmp /tmp/before /tmp/after
		shows "$leave"
		kill $server
		exec 7>&-
	done
}

try 60 "top --batch: shares of two users and three jobs" shares
long try 90 "record, plot, and top of a recording" recorded
long try 40 "recordings ended by signals" ended
long try 60 "the service and the module are removed and return" unloaded
long try 90 "top on a terminal: keys, signals, and its settings afterwards" interactive
summary
