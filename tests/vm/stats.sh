#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Statistics: correct numbers, and difficult names. The host's tests parse the writers' output with
# a YAML parser.
. /tests/nrs.sh

# reads NAME N: Reads 4 KiB N times by a program of that name.
reads() {
	ln -sf /bin/busybox "/tmp/names/$1"
	(
		exec -a dd "/tmp/names/$1" if=/dev/mapper/a of=/dev/null bs=4k count="$2" \
			iflag=direct 2>/dev/null
	)
}

# field ENTITY FIELD: Prints a field of the statistics.
field() {
	awk -v e="\"$1\"" -v f="$2:" '/entity:/ { on = $3 == e } on && $1 == f { print $2 }' \
		"$(at svc nrs_fairshare_stats)"
}

# Verifies programs with difficult names: all requests are counted, and no name breaks a line.
names() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare jobid_fair'
	mkdir -p /tmp/names
	local name hostile=('a"b' 'b\c' 'c: d' '- e' '{f' '[g]' '# h' '&i *j' '!k' '|' '> l' "m'n" '%o'
		'@`' $'p\nq' $'r\tt' $'\xff\xfe'
		$'s\x01\x7f' ' u' 'v ' 'null' 'true' '0x10' '~' '...' '---' 'ü' '\' '"' 'w, x' 'y=z' '$(z)')
	# Concurrently, because entities idle for 10 s are evicted.
	local pids=() pid
	for name in "${hostile[@]}"; do
		reads "$name" 20 &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || fail "one of dd"; done
	cat "$(at svc nrs_fairshare_stats)" >/tmp/stats
	grep -qF 'entity: "jobid:a\"b.0"' /tmp/stats && grep -qF 'entity: "jobid:b\\c.0"' /tmp/stats ||
		fail "$(grep entity: /tmp/stats)"
	awk -v want=$((20 * ${#hostile[@]})) '
		/entity:/ { n++ }
		$1 == "dispatched:" { all += $2 }
		!/^(- |  )[a-z_0-9]+: / { bad = $0 }
		END {
			print n " entities, " all " requests " bad
			exit !(n >= 25 && all == want && bad == "")
		}
	' /tmp/stats || fail "$(cat /tmp/stats)"
	rm -r /tmp/names
}

# Verifies that counters count, and continue after a reset to zero.
numbers() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare jobid_fair'
	mkdir -p /tmp/names
	reads alpha 50
	reads beta 30
	[ "$(field jobid:alpha.0 dispatched)" = 50 ] && [ "$(field jobid:beta.0 dispatched)" = 30 ] &&
		[ "$(field jobid:beta.0 cost_pages)" = 30 ] ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
	[ "$(field jobid:alpha.0 queue_depth)" = 0 ]
	[ "$(counter a bytes)" = $((80 * 4096)) ]
	echo 1 >"$(at svc nrs_fairshare_stats_reset)"
	[ "$(field jobid:alpha.0 dispatched)" = 0 ] && [ "$(field jobid:beta.0 cost_pages)" = 0 ] ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
	reads alpha 10
	[ "$(field jobid:alpha.0 dispatched)" = 10 ] || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	# Also by message.
	dm message a 0 service nrs_fairshare_stats_reset 1
	[ "$(field jobid:alpha.0 dispatched)" = 0 ]
}

try 40 "difficult names" names
long try 20 "counters and their reset" numbers
summary
