#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Parameters of crrn, orr, trr and delay, and of services: their exact text, and their persistence.
. /tests/nrs.sh

# Lines PARAMETER|VALUE|text shown afterwards; without VALUE nothing is written. ~ is a blank at the
# end of a line. A selection of each kind; the host's tests and fuzz targets have all values.
cat >/tmp/taken <<'END'
nrs_crrn_quantum||reg_quantum:8~~~~ hp_quantum:8~~~~
nrs_crrn_quantum|65535|reg_quantum:65535 hp_quantum:65535
nrs_crrn_quantum|hp_quantum:20|reg_quantum:65535 hp_quantum:20~~~
nrs_orr_quantum|hp_quantum:5 reg_quantum:6|reg_quantum:6~~~~ hp_quantum:5~~~~
nrs_trr_quantum|reg_quantum: 7   hp_quantum:   8|reg_quantum:7~~~~ hp_quantum:8~~~~
nrs_orr_offset_type|hp_offset_type:  logical|reg_offset_type:physical hp_offset_type:logical
nrs_delay_max|65535|reg_delay_max:65535 hp_delay_max:65535
nrs_delay_min|hp_delay_min:8 reg_delay_min:70|reg_delay_min:70~~~ hp_delay_min:8~~~~
nrs_pop|overlap|overlap
buffer_max|4096|4096
at_factor|1000|1000
at_estimator|average|average
obd_timeout|0|0
high_priority_sources|prio realtime|realtime prio
END

# show FILE: Sets $shown to its text in the table's form: lines joined by a blank, trailing blanks
# as ~.
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

# set_all: Writes and verifies the values of the table, in its order.
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

# show_all: Sets $all to the current text of these parameters.
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

# Verifies that values persist before, while and after a policy runs, on one head or both, and for
# later clients.
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

# Verifies the list of all policies, in its order, with their states.
policies() {
	setup
	local name names=(fifo crrn orr trr tbf delay fairshare qbm)
	for name in "${names[@]}"; do
		policy svc "$name"
		[ "$(grep -c "  - name: $name$" "$(at svc nrs_policies)")" = 2 ] ||
			[ "$name" = fairshare ] || [ "$name" = tbf ] || fail "$(cat "$(at svc nrs_policies)")"
		[ "$(awk '/name:/ { print $3 }' "$(at svc nrs_policies)" | tr '\n' ' ')" = \
			"${names[*]} ${names[*]} " ] || fail "$(cat "$(at svc nrs_policies)")"
		awk -v n="$name" \
			'/name:/ { on = $3 == n } on && /state:/ { good += $2 == "started" }
				END { exit good != 2 }' "$(at svc nrs_policies)" ||
			fail "$(cat "$(at svc nrs_policies)")"
	done
}

try 40 "values have the expected text, and survive stops and starts" stay
try 20 "the list of policies" policies
summary
