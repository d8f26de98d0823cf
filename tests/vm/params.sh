#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Parameters of crrn, orr, trr and delay, and those of services: how they are shown, byte for byte, what is taken, what is
# refused with which error, and that they stay.
. /tests/nrs.sh

# zeros COUNT NUMBER: the number with leading zeros, COUNT characters in all.
zeros() {
	printf "%0$1d" "$2"
}

# Lines PARAMETER|VALUE|what is shown then; no VALUE: nothing is written. ~ is a blank at the end of a line.
cat >/tmp/taken <<END
nrs_crrn_quantum||reg_quantum:8~~~~ hp_quantum:8~~~~
nrs_orr_quantum||reg_quantum:256~~ hp_quantum:256~~
nrs_trr_quantum||reg_quantum:256~~ hp_quantum:256~~
$(for policy in crrn orr trr; do sed "s/^/nrs_${policy}_quantum|/" <<QUANTUM; done
16|reg_quantum:16~~~ hp_quantum:16~~~
65535|reg_quantum:65535 hp_quantum:65535
reg_quantum:1|reg_quantum:1~~~~ hp_quantum:65535
hp_quantum:20|reg_quantum:1~~~~ hp_quantum:20~~~
reg_quantum:300 hp_quantum:4000|reg_quantum:300~~ hp_quantum:4000~
hp_quantum:5 reg_quantum:6|reg_quantum:6~~~~ hp_quantum:5~~~~
reg_quantum: 7   hp_quantum:   8|reg_quantum:7~~~~ hp_quantum:8~~~~
$(zeros 34 9)|reg_quantum:9~~~~ hp_quantum:9~~~~
reg_quantum:$(zeros 22 10)|reg_quantum:10~~~ hp_quantum:9~~~~
QUANTUM
)
$(for policy in orr trr; do sed "s/^/nrs_${policy}_/" <<WORDS; done
offset_type||reg_offset_type:physical hp_offset_type:physical
offset_type|logical|reg_offset_type:logical hp_offset_type:logical
offset_type|reg_offset_type:physical|reg_offset_type:physical hp_offset_type:logical
offset_type|hp_offset_type:physical reg_offset_type:logical|reg_offset_type:logical hp_offset_type:physical
offset_type|reg_offset_type:physical hp_offset_type:physical|reg_offset_type:physical hp_offset_type:physical
offset_type|hp_offset_type:  logical|reg_offset_type:physical hp_offset_type:logical
supported||reg_supported:reads hp_supported:reads
supported|writes|reg_supported:writes hp_supported:writes
supported|reads_and_writes|reg_supported:reads_and_writes hp_supported:reads_and_writes
supported|hp_supported:reads|reg_supported:reads_and_writes hp_supported:reads
supported|reg_supported:writes hp_supported:reads_and_writes|reg_supported:writes hp_supported:reads_and_writes
supported|hp_supported:writes reg_supported:reads|reg_supported:reads hp_supported:writes
WORDS
)
nrs_delay_min||reg_delay_min:5~~~~ hp_delay_min:5~~~~
nrs_delay_max||reg_delay_max:300~~ hp_delay_max:300~~
nrs_delay_pct||reg_delay_pct:100 hp_delay_pct:100
nrs_delay_max|65535|reg_delay_max:65535 hp_delay_max:65535
nrs_delay_min|65535|reg_delay_min:65535 hp_delay_min:65535
nrs_delay_min|0|reg_delay_min:0~~~~ hp_delay_min:0~~~~
nrs_delay_max|0|reg_delay_max:0~~~~ hp_delay_max:0~~~~
nrs_delay_max|reg_delay_max:70 hp_delay_max:8|reg_delay_max:70~~~ hp_delay_max:8~~~~
nrs_delay_min|hp_delay_min:8 reg_delay_min:70|reg_delay_min:70~~~ hp_delay_min:8~~~~
nrs_delay_min|reg_delay_min:3|reg_delay_min:3~~~~ hp_delay_min:8~~~~
nrs_delay_max|hp_delay_max: 9|reg_delay_max:70~~~ hp_delay_max:9~~~~
nrs_delay_min|$(zeros 38 2)|reg_delay_min:2~~~~ hp_delay_min:2~~~~
nrs_delay_pct|0|reg_delay_pct:0~~ hp_delay_pct:0~~
nrs_delay_pct|hp_delay_pct:50 reg_delay_pct:1|reg_delay_pct:1~~ hp_delay_pct:50~
nrs_delay_pct|reg_delay_pct:99|reg_delay_pct:99~ hp_delay_pct:50~
nrs_pop||none
nrs_pop|overlap|overlap
nrs_pop|stream|stream
nrs_pop|graph|graph
nrs_pop|none|none
nrs_pop|overlap|overlap
nrs_pop_window||1024
nrs_pop_window|1|1
nrs_pop_window|65536|65536
buffer_max||65536
buffer_max|256|256
buffer_max|1048576|1048576
buffer_max|4096|4096
at_early_margin||5
at_early_margin|1|1
at_min||5
at_min|600|600
at_min|1|1
at_extra||30
at_extra|600|600
at_extra|1|1
at_max||600
at_max|1|1
at_max|3600|3600
at_max|0|0
at_max|7|7
at_history||600
at_history|4|4
at_history|3600|3600
at_factor||125
at_factor|100|100
at_factor|1000|1000
at_increment||5
at_increment|0|0
at_increment|600|600
at_initial||10
at_initial|1|1
at_initial|3600|3600
at_deviations||4
at_deviations|1|1
at_deviations|100|100
at_estimator||worst
at_estimator|average|average
at_estimator|worst|worst
at_count_policy_delay||0
at_count_policy_delay|1|1
obd_timeout||100
obd_timeout|0|0
obd_timeout|3600|3600
at_unhealthy_factor||3
at_unhealthy_factor|0|0
at_unhealthy_factor|1000|1000
at_unhealthy_factor|5|5
high_priority_sources||realtime
high_priority_sources|meta|meta
high_priority_sources|prio realtime|realtime prio
high_priority_sources|none|none
high_priority_sources|realtime meta prio|realtime meta prio
END

# Lines PARAMETER|VALUE|ERRNO: one of each kind; the host's tests have all of them.
cat >/tmp/refused <<END
nrs_crrn_quantum|0|EINVAL
nrs_orr_quantum|reg_quantum:5 reg_quantum:6|EINVAL
nrs_trr_quantum|$(zeros 35 9)|EINVAL
nrs_orr_offset_type|hp_offset_type:logical reg_offset_type:none|EINVAL
nrs_trr_supported|both|EINVAL
nrs_delay_min|reg_delay_min:4 hp_delay_min:10|EINVAL
nrs_delay_max|1|EINVAL
nrs_policies|crrn x|EINVAL
nrs_pop|Overlap|EINVAL
nrs_pop_window|0|EINVAL
buffer_max|1048577|EINVAL
at_min|8|EINVAL
at_early_margin|2|EINVAL
at_estimator|total|EINVAL
at_max||EINVAL
at_unhealthy_factor|4294967296|EINVAL
high_priority_sources|none meta|EINVAL
nrs_concurrency|1|EACCES
timeouts|1|EACCES
END

# show FILE: its text in $shown, in the form of the table: lines joined by a blank, blanks at the ends of lines as ~.
show() {
	local lines line end
	mapfile lines <"$1"
	shown=''
	for line in "${lines[@]}"; do
		[[ $line == *$'\n' ]] || shown+='(no newline)'
		line=${line%$'\n'}
		end=${line##*[! ]}
		shown+="${shown:+ }${line%"$end"}${end// /\~}"
	done
}

# set_all: what the table says, in its order; looks at each.
set_all() {
	local name value want file
	set +x
	while IFS='|' read -r name value want; do
		file=$(at svc "$name")
		[ -z "$value" ] || set_to svc "$name" "$value"
		show "$file"
		[ "$shown" = "$want" ] || fail "$name = '$value': '$shown' in place of '$want'"
	done </tmp/taken
	set -x
}

# show_all: all of these parameters as they are, in $all.
show_all() {
	local name
	all=''
	for name in $names; do
		show "/sys/kernel/debug/nrs/svc/$name"
		all+="$name $shown"$'\n'
	done
}

names=$(cut -d'|' -f1 /tmp/taken | sort -u)

setup() {
	module
	lower nb0
	lower nb1
	client a /dev/nb0 svc
}

taken() {
	setup
	set_all
	say "$(wc -l </tmp/taken) written and read"
}

refused_ones() {
	setup
	set_all
	local name value errno before all_before file tried=0
	show_all
	all_before=$all
	while IFS='|' read -r name value errno; do
		tried=$((tried + 1))
		if [ "$errno" = EACCES ]; then
			refused EACCES dm message a 0 service "$name" "$value"
			continue
		fi
		file=$(at svc "$name")
		show "$file"
		before=$shown
		expect_errno "$errno" "$file" "$value"
		show "$file"
		[ "$name" = nrs_policies ] || [ "$shown" = "$before" ] || fail "$name = '$value' was refused: $before is $shown"
	done </tmp/refused
	show_all
	[ "$all" = "$all_before" ] || fail "$(diff <(echo "$all_before") <(echo "$all"))"
	if grep -E 'name: (crrn|orr|trr|delay) ' "$(at svc nrs_policies)"; then fail "shown with an argument"; fi
	say "$tried refused"
}

# Values are there before, while and after a policy runs, on one head or both, and for clients that come later.
stay() {
	setup
	set_all
	local before policy
	show_all
	before=$all
	for policy in crrn orr 'trr reg' 'delay hp' 'crrn hp' trr delay fifo; do
		policy svc "$policy"
		show_all
		[ "$all" = "$before" ] || fail "$policy: $(diff <(echo "$before") <(echo "$all"))"
	done
	mkdir /sys/kernel/config/nrs/conf
	echo 'hp_quantum:3' >"$(at conf nrs_crrn_quantum)"
	echo 'reg_delay_min:1' >"$(at conf nrs_delay_min)"
	echo overlap >"$(at conf nrs_pop)"
	client b /dev/nb1 conf
	dm_remove b
	show "$(at conf nrs_crrn_quantum)"
	[ "$shown" = 'reg_quantum:8~~~~ hp_quantum:3~~~~' ] || fail "nrs_crrn_quantum: $shown"
	show "$(at conf nrs_delay_min)"
	[ "$shown" = 'reg_delay_min:1~~~~ hp_delay_min:5~~~~' ] || fail "nrs_delay_min: $shown"
	[ "$(cat "$(at conf nrs_pop)")" = overlap ]
}

# The same by messages.
messages() {
	setup
	dm message a 0 service nrs_trr_quantum hp_quantum:3 reg_quantum:4
	dm message a 0 service nrs_delay_max 12
	[ "$(dm message a 0 service nrs_trr_quantum)" = $'reg_quantum:4    \nhp_quantum:3    ' ] || fail "$(dm message a 0 service nrs_trr_quantum)"
	show "$(at svc nrs_delay_max)"
	[ "$shown" = 'reg_delay_max:12~~~ hp_delay_max:12~~~' ] || fail "nrs_delay_max: $shown"
	refused EINVAL dm message a 0 service nrs_trr_quantum hp_quantum:3 hp_quantum:4
	refused EINVAL dm message a 0 service nrs_delay_min 13
	dm message a 0 service nrs_policies crrn
	dm message a 0 service nrs_pop overlap
	dm message a 0 service high_priority_sources realtime prio
	dm message a 0 service health | grep -qx healthy
	dm message a 0 service nrs_concurrency | grep -q fan_out
}

# All policies, in their order, each with its state.
policies() {
	setup
	local name names=(fifo crrn orr trr tbf delay fairshare qbm)
	for name in "${names[@]}"; do
		policy svc "$name"
		[ "$(grep -c "  - name: $name$" "$(at svc nrs_policies)")" = 2 ] || [ "$name" = fairshare ] || [ "$name" = tbf ] || fail "$(cat "$(at svc nrs_policies)")"
		[ "$(awk '/name:/ { print $3 }' "$(at svc nrs_policies)" | tr '\n' ' ')" = "${names[*]} ${names[*]} " ] || fail "$(cat "$(at svc nrs_policies)")"
		awk -v n="$name" '/name:/ { on = $3 == n } on && /state:/ { good += $2 == "started" } END { exit good != 2 }' "$(at svc nrs_policies)" ||
			fail "$(cat "$(at svc nrs_policies)")"
	done
}

long try 60 "$(wc -l </tmp/taken) values as they are shown" taken
long try 60 "$(wc -l </tmp/refused) wrong values" refused_ones
try 40 "values outlive stops and starts" stay
long try 20 "by messages" messages
try 20 "the list of policies" policies
summary
