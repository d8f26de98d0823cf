#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: trace.sh [FUNCTION...]
#
# Tracepoints: their fields, each event once and in order per request, and numbers that match the
# actual times. Runs the examples of Documentation/tracing.md as written, if the machine has the
# page (/tracing.md) and the tools (/trace, scripts/trace-tools.sh).
. /tests/nrs.sh

only=$*
tracing=/sys/kernel/tracing
grep -q " $tracing " /proc/mounts || mount -t tracefs tracefs $tracing

# setup [WORD...]: Creates client a on a disk that takes 2 ms per request; disables all events.
setup() {
	module
	[ ! -e $tracing/events/nrs ] || echo 0 >$tracing/events/nrs/enable
	echo 8192 >$tracing/buffer_size_kb
	echo >$tracing/trace
	slow_lower nb0 2000000
	client a /dev/nb0 svc "$@"
}

# enable_events EVENT...: Enables these events.
enable_events() {
	local name
	for name; do echo 1 >"$tracing/events/nrs/nrs_$name/enable"; done
}

# stop: Disables all events, and writes the trace to /tmp/events; fails if events were lost.
stop() {
	echo 0 >$tracing/events/nrs/enable
	grep -q 'entries-in-buffer/entries-written: \([0-9]*\)/\1 ' $tracing/trace ||
		fail "events were lost: $(head -n 4 $tracing/trace)"
	grep -v '^#' $tracing/trace >/tmp/events || true
}

# of EVENT FIELD...: Prints the fields of each such event in /tmp/events, one line per event.
of() {
	local event=$1
	shift
	awk -v event="nrs_$event:" -v fields="$*" '
		BEGIN { n = split(fields, wanted, " ") }
		!index($0, " " event " ") { next }
		{
			split("", value)
			for (i = 1; i <= NF; i++) {
				at = index($i, "=")
				if (at) value[substr($i, 1, at - 1)] = substr($i, at + 1)
			}
			line = ""
			for (i = 1; i <= n; i++) line = line (i > 1 ? " " : "") value[wanted[i]]
			print line
		}' /tmp/events
}

# fields EVENT: Prints the event's own fields, as TYPE NAME.
fields() {
	sed -n 's/^\tfield:\([^;]*\);.*/\1/p' "$tracing/events/nrs/nrs_$1/format" | grep -v ' common_' |
		tr '\n' ';'
}

# Verifies that events and fields are stable, because programs depend on them.
stable() {
	setup
	[ "$(cd $tracing/events/nrs; echo nrs_*)" = \
		'nrs_complete nrs_dispatch nrs_enqueue nrs_factors nrs_policy nrs_shares nrs_throttle' ]
	local name want got
	for name in enqueue dispatch complete throttle policy shares factors; do
		case $name in
		enqueue)
			want='u64 id;u64 bytes;u64 offset;char service[32];char policy[16];char jobid[32];'
			want+='char nid[64];u32 uid;u32 gid;u32 opcode;u16 cpt;u8 high;u8 queued;'
			;;
		dispatch)
			want='u64 id;u64 bytes;u64 waited_ns;char service[32];char policy[16];u32 slots;'
			want+='u32 limit;u16 cpt;u8 high;u8 queued;u8 slot;'
			;;
		complete)
			want='u64 id;u64 bytes;u64 service_ns;char service[32];s32 error;u16 cpt;u8 high;'
			;;
		throttle)
			want='u64 until_ns;u64 delay_ns;char service[32];char policy[16];u32 queued;'
			want+='u16 cpt;u8 high;'
			;;
		policy) want='char service[32];char old[16];char new[16];char argument[64];u8 high;' ;;
		shares)
			want='u64 entities;u64 generation;u64 delta_ms;u64 took_ns;char service[32];u8 high;'
			;;
		factors) want='u64 instance;u64 factors;u64 lease_ms;char service[32];u32 step;' ;;
		esac
		got=$(fields $name)
		[ "$got" = "$want" ] || fail "nrs_$name has '$got', not '$want'"
		# All fields are documented.
		[ ! -f /tracing.md ] || for got in $(tr ';' '\n' <<<"$want" | sed 's/.* //; s/\[.*//'); do
			awk -v name="nrs_$name" '/^#/ { here = index($0, name) } here' /tracing.md | grep \
				"^| \`$got\`" >/dev/null || fail "nrs_$name: $got is not in the documentation"
		done
	done
}

# paired COUNT: Verifies that COUNT requests each have arrived, been dispatched and completed, once
# and in this order, with consistent fields.
paired() {
	awk -v want="$1" '
		function bad(why) { print why ": " $0; wrong = 1; exit 1 }
		{
			event = ""
			split("", value)
			for (i = 1; i <= NF; i++) {
				if ($i ~ /^nrs_[a-z]*:$/) event = $i
				at = index($i, "=")
				if (at) value[substr($i, 1, at - 1)] = substr($i, at + 1)
			}
			id = value["id"]
			same = value["service"] " " value["head"] " " value["cpt"] " " value["bytes"]
		}
		event == "nrs_enqueue:" {
			if (id in state) bad("twice")
			state[id] = 1; said[id] = same; queued[id] = value["queued"]; n++
		}
		event == "nrs_dispatch:" {
			if (state[id] != 1) bad("not after its arrival"); state[id] = 2
			if (said[id] != same || queued[id] != value["queued"]) bad("not what arrived")
			if (value["queued"] == 0 && value["waited_ns"] != 0) bad("did not wait")
			if (value["slots"] < value["slot"] || value["slots"] > value["limit"]) bad("slots")
		}
		event == "nrs_complete:" {
			if (state[id] != 2) bad("not after its dispatch")
			state[id] = 3
			if (said[id] != same) bad("not what arrived")
			done++
		}
		END {
			if (!wrong && (n != want || done != want)) {
				print n " arrived and " done " ended of " want; exit 1
			}
		}
	' /tmp/events || fail "not paired"
}

pairs() {
	setup
	policy svc 'fairshare uid_fair'
	echo 4 >"$(at svc slots)"
	enable_events enqueue dispatch complete
	load a as=1001 --io_size=400k >/dev/null
	load a as=1002 --rw=randwrite --bs=16k --io_size=400k >/dev/null
	wait_for 10 '[ "$(counter a held)" = 0 ]'
	stop
	paired 125
	local counts
	counts=$(of enqueue uid gid service policy opcode bytes head nid | sort | uniq -c |
		sed 's/^ *//')
	[ "$counts" = "100 1001 0 svc fairshare 3 4096 regular 
25 1002 0 svc fairshare 4 16384 regular " ] || fail "$counts"
	[ "$(of enqueue jobid | sort -u | tr '\n' ' ')" = 'fio.1001 fio.1002 ' ] ||
		fail "$(of enqueue jobid | sort -u)"
	[ "$(of complete error | sort -u)" = 0 ]
	[ "$(of dispatch waited_ns | awk '$1 > 0' | wc -l)" -ge 50 ] || fail "few waited"
	# Requests took both paths, queued and direct.
	[ "$(of enqueue queued | sort -u | tr '\n' ' ')" = '0 1 ' ] ||
		fail "only one of the paths, queued and direct, was taken"
	# Offsets are relative to the device.
	of enqueue offset | awk -v end="$(($(sectors /dev/nb0) * 512))" \
		'$1 % 4096 || $1 >= end { exit 1 }' || fail "offsets"
}

# Verifies that times match the device: with one request at a time, each has the service time of the
# device, and the others wait for the earlier ones.
times() {
	setup opportunity off
	policy svc 'fairshare uid_fair'
	echo 1 >"$(at svc slots)"
	enable_events enqueue dispatch complete
	load a as=1001 --iodepth=8 --io_size=400k >/dev/null
	stop
	paired 100
	of complete service_ns |
		awk '{ sum += $1 } $1 < 2000000 { print $1; exit 1 }
			END { print "served in " sum / NR; exit !(sum / NR < 2500000) }' ||
		fail "a device that takes 2 ms"
	# Seven of eight requests are before the last one.
	of dispatch waited_ns |
		awk 'NR > 8 && NR <= 93 { sum += $1; n++ }
			END { print "waited for " sum / n;
				exit !(sum / n > 7 * 2000000 && sum / n < 7 * 2500000) }' ||
		fail "seven before it"
	[ "$(of dispatch slots | sort -u)" = 1 ]
	[ "$(of dispatch slot | sort -u)" = 1 ]
	[ "$(of dispatch limit | sort -u)" = 1 ]
}

# Verifies failing requests, and requests of high priority.
failures() {
	setup
	dm_create bad "0 $(sectors /dev/nb0) error"
	client b /dev/mapper/bad svc
	echo 'realtime' >"$(at svc high_priority_sources)"
	enable_events enqueue dispatch complete
	load b --io_size=64k --continue_on_error=all >/dev/null 2>&1 || true
	ionice -c 1 -n 0 dd if=/dev/mapper/a of=/dev/null bs=4k count=8 iflag=direct 2>/dev/null
	stop
	[ "$(of complete error head | sort | uniq -c | sed 's/^ *//' | tr '\n' ',')" = \
		'16 -5 regular,8 0 high,' ] ||
		fail "$(of complete error head | sort | uniq -c)"
	paired 24
}

# Verifies that a rate throttles all requests, with the time until which they are throttled.
throttle() {
	setup
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'start one uid={1001} rate=50'
	enable_events enqueue dispatch complete throttle
	load a as=1001 --io_size=200k >/dev/null
	stop
	paired 50
	[ "$(of throttle service head policy cpt | sort -u)" = 'svc regular tbf 0' ] ||
		fail "$(of throttle service head policy cpt | sort -u)"
	# All requests except the first few wait for their token, 20 ms.
	[ "$(of throttle delay_ns | wc -l)" -ge 30 ] || fail "$(of throttle delay_ns | wc -l) times"
	of throttle delay_ns queued | awk '$1 == 0 || $1 > 20000000 || $2 == 0 { print; exit 1 }' ||
		fail "longer than a token takes"
	# Dispatched at the announced time.
	awk '
		{
			for (i = 1; i <= NF; i++) {
				at = index($i, "="); value[substr($i, 1, at - 1)] = substr($i, at + 1)
			}
			time = 0 + $4
		}
		/ nrs_throttle: / {
			due = $0; sub(/.*\] [^ ]* */, "", due); sub(/:.*/, "", due)
			due += value["delay_ns"] / 1e9
			next
		}
		/ nrs_dispatch: / && due {
			now = $0; sub(/.*\] [^ ]* */, "", now); sub(/:.*/, "", now)
			if (now < due - 0.001 || now > due + 0.010) { print now - due; exit 1 }
			n++; due = 0
		}
		END { print n " on time"; exit n < 30 }
	' /tmp/events || fail "not served when it was due"
}

# Verifies an event for each change of policy, per head; a refused change has none.
policies() {
	setup
	enable_events policy
	policy svc 'tbf uid'
	policy svc 'fairshare reg uid_fair'
	policy svc 'fairshare reg uid_fair'
	echo 'fairshare nothing' >"$(at svc nrs_policies)" 2>/dev/null || true
	# The first change of parameters is in place.
	set_to svc nrs_fairshare_delta_ms 200
	set_to svc nrs_fairshare_select paper
	policy svc fifo
	stop
	of policy service head old new argument >/tmp/got
	cat >/tmp/want <<-'END'
		svc regular fifo tbf uid
		svc high fifo tbf uid
		svc regular tbf fairshare uid_fair
		svc regular fairshare fairshare uid_fair
		svc regular fairshare fifo 
		svc high tbf fifo 
	END
	cmp /tmp/got /tmp/want || fail "$(diff /tmp/want /tmp/got)"
}

# Verifies the events of share computations: entities, interval, duration.
shares() {
	setup
	policy svc 'fairshare uid_fair'
	set_to svc nrs_fairshare_delta_ms 100
	echo 4 >"$(at svc slots)"
	local uid
	for uid in 1001 1002 1003; do load a as=$uid --time_based --runtime=60 >/dev/null 2>&1 & done
	saturated a
	sleep 0.5
	enable_events shares
	wait_for 10 '[ "$(grep -c nrs_shares: $tracing/trace)" -ge 10 ]'
	stop
	[ "$(of shares service head entities | sort -u)" = 'svc regular 3' ] ||
		fail "$(of shares service head entities | sort -u)"
	of shares delta_ms took_ns | awk \
		'$1 < 90 || $1 > 150 || $2 == 0 || $2 > $1 * 1e6 { print; exit 1 }' ||
		fail "not every 100 ms"
	of shares generation | awk 'NR > 1 && $1 <= last { print; exit 1 } { last = $1 }' ||
		fail "generations go back"
}

# Verifies that requests of programs carry their client's identity.
user() {
	module
	[ -x /bin/nrs-test ] || fail "no nrs-test: build-tools.sh"
	echo >$tracing/trace
	enable_events enqueue dispatch complete
	nrs-test load --seconds 30 --drain \
		--client name=a,nid=10.0.0.7@tcp,jobid=job.7$'\n\x1b'uid=0,uid=1007,requests=200 \
		>/tmp/load.json || fail "$(tail -n 3 /tmp/load.json)"
	stop
	[ "$(of enqueue nid jobid uid | sort -u)" = '10.0.0.7@tcp job.7__uid=0 1007' ] ||
		fail "$(of enqueue nid jobid uid | sort -u | head -n 3)"
	paired 200
}

# unseen: Verifies that requests dispatched while events were disabled have no service time.
unseen() {
	module
	echo >$tracing/trace
	slow_lower nb0 300000000
	client a /dev/nb0 svc opportunity off
	echo 1 >"$(at svc slots)"
	enable_events enqueue dispatch complete
	load a --iodepth=8 --time_based --runtime=60 >/dev/null 2>&1 &
	saturated 4 a
	stop
	local ended
	ended=$(counter a ended)
	wait_for 20 "[ \"\$(counter a ended)\" -ge $((ended + 2)) ]"
	echo >$tracing/trace
	enable_events complete
	wait_for 20 "[ \"\$(counter a ended)\" -ge $((ended + 5)) ]"
	stop
	[ -s /tmp/events ] || fail "nothing that arrived before has ended"
	[ "$(of complete service_ns | sort -n | tail -n 1)" -lt 2000000000 ] ||
		fail "$(of complete id service_ns)"
}

# off: Verifies that disabled events record nothing, and that no request is recorded partially.
off() {
	setup
	echo 4 >"$(at svc slots)"
	enable_events enqueue
	stop
	load a --io_size=400k >/dev/null
	[ "$(grep -vc '^#' $tracing/trace)" = 0 ] || fail "$(tail -n 2 $tracing/trace)"
	local i
	load a --time_based --runtime=60 >/dev/null 2>&1 &
	saturated a
	for ((i = 0; i < 20; i++)); do
		echo >$tracing/trace
		enable_events enqueue dispatch complete
		sleep 0.1
		echo 0 >$tracing/events/nrs/nrs_enqueue/enable
		stop
		# A completed request was recorded as dispatched, unless it arrived while all events were
		# enabled and was completed later: in order, never twice.
		awk '
			{
				for (i = 1; i <= NF; i++) if ($i ~ /^id=/) id = $i
				s = / nrs_enqueue: / ? 1 : / nrs_dispatch: / ? 2 : 3
			}
			state[id] >= s || id == "id=0" { print; exit 1 }
			{ state[id] = s }
		' /tmp/events || fail "seen twice, or out of order"
	done
}

# Unloads the module while its events are enabled, and loads it again.
gone() {
	setup
	local round
	for round in 1 2; do
		enable_events enqueue dispatch complete throttle policy shares
		load a --io_size=100k >/dev/null
		[ "$(grep -c ' nrs_complete: ' $tracing/trace)" -ge 25 ] ||
			fail "round $round: $(tail -n 2 $tracing/trace)"
		dm_remove a
		rmmod nrs
		[ ! -e $tracing/events/nrs ] || fail "its events are left"
		# Events left in the buffer can be read without the module.
		cat $tracing/trace >/dev/null
		module
		wait_for 5 "[ -e $tracing/events/nrs ]"
		echo >$tracing/trace
		client a /dev/nb0 svc
	done
}

# example N SECONDS: Runs the Nth bpftrace program of the documentation for that long, or until it
# ends; its output is in /tmp/shown.
example() {
	awk -v n="$1" '/^```bpftrace/ { i++; on = i == n; next } /^```/ { on = 0 } on' \
		/tracing.md >/tmp/example.bt
	[ -s /tmp/example.bt ] || fail "no example $1"
	rm -f /tmp/shown
	/trace/run bpftrace /tmp/example.bt >/tmp/shown 2>&1 &
	local pid=$!
	wait_for 120 'grep -qs Attach /tmp/shown' || fail "$(cat /tmp/shown)"
	sleep "$2"
	kill -TERM $pid 2>/dev/null || true
	wait_for 60 "! kill -0 $pid 2>/dev/null" || fail "does not end: $(cat /tmp/shown)"
	wait $pid || true
	{ echo "== example $1" && cat /tmp/shown; } >>/out/examples
	if grep -qE 'ERROR|WARN' /tmp/shown; then fail "$(cat /tmp/shown)"; fi
}

# Starts two users, one of them with a rate.
loaded() {
	setup
	client b /dev/nb0 svc
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'start slow uid={1001} rate=50'
	load a as=1001 --time_based --runtime=400 >/dev/null 2>&1 &
	load b as=1002 --time_based --runtime=400 --iodepth=4 --thinktime=20ms >/dev/null 2>&1 &
	saturated a
}

bpftrace() {
	loaded
	example 1 3
	grep -q '^@waited_us\[1001\]' /tmp/shown && grep -q '^@waited_us\[1002\]' /tmp/shown ||
		fail "$(cat /tmp/shown)"
	example 2 4
	grep -qE '^@per_second\[svc, 1001, fio.1001\]: (4[5-9]|5[0-5])$' /tmp/shown ||
		fail "$(cat /tmp/shown)"
	example 3 4
	grep -qE '^@withheld_ms\[svc, tbf, 1001\]: [0-9]+$' /tmp/shown || fail "$(cat /tmp/shown)"
	if grep -q '^@withheld_ms\[svc, tbf, 1002\]' /tmp/shown; then
		fail "1002 has no rate: $(cat /tmp/shown)"
	fi
	example 4 3
	grep -q '^@service_us\[svc\]' /tmp/shown || fail "$(cat /tmp/shown)"
}

# Runs the commands of the documentation that begin with trace-cmd, in order.
tracecmd() {
	loaded
	cd /tmp
	local line n=0
	while read -r line; do
		line=${line#\# }
		{ echo "== $line"; } >>/out/examples
		bash -c "trace-cmd() { /trace/run trace-cmd \"\$@\"; }; $line" >/tmp/shown 2>&1 ||
			fail "$line: $(tail -n 4 /tmp/shown)"
		head -n 12 /tmp/shown >>/out/examples
		n=$((n + 1))
		case $line in
		*report*) grep -q ' nrs_[a-z]*: ' /tmp/shown || fail "$line: $(tail -n 4 /tmp/shown)" ;;
		esac
	done < <(grep '^# trace-cmd ' /tracing.md)
	[ "$n" -ge 3 ] || fail "only $n commands"
}

try 30 "fields equal the documentation" stable
try 40 "every request has its events" pairs
long try 30 "times match the device" times
long try 30 "failures and high priority" failures
long try 40 "throttled requests" throttle
try 30 "changes of policy" policies
long try 40 "shares" shares
long try 20 "requests of programs" user
long try 60 "disabled events" off
long try 60 "requests dispatched while events were disabled" unseen
long try 40 "rmmod" gone
if [ -x /trace/run ] && [ -f /tracing.md ]; then
	long try 240 "examples for bpftrace" bpftrace
	long try 120 "examples for trace-cmd" tracecmd
fi
summary
