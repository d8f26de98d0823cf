#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Statistics: right numbers, names that do their worst. What is read goes to /out/yaml, where tests/check-yaml.py on the
# host looks at it with a YAML parser.
. /tests/nrs.sh

# reads NAME N: N reads of 4 KiB by a program of that name.
reads() {
	ln -sf /bin/busybox "/tmp/names/$1"
	(exec -a dd "/tmp/names/$1" if=/dev/mapper/a of=/dev/null bs=4k count="$2" iflag=direct 2>/dev/null)
}

# field ENTITY FIELD: from the statistics.
field() {
	awk -v e="\"$1\"" -v f="$2:" '/entity:/ { on = $3 == e } on && $1 == f { print $2 }' "$(at svc nrs_fairshare_stats)"
}

# Programs with all sorts of names; the bytes that are expected of each go to a file, in hexadecimal.
names() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare jobid_fair'
	mkdir -p /tmp/names /out/yaml
	local name hostile=('a"b' 'b\c' 'c: d' '- e' '{f' '[g]' '# h' '&i *j' '!k' '|' '> l' "m'n" '%o' '@`' $'p\nq' $'r\tt' $'\xff\xfe'
		$'s\x01\x7f' ' u' 'v ' 'null' 'true' '0x10' '~' '...' '---' 'ü' '\' '"' 'w, x' 'y=z' '$(z)')
	# All at once: who has had nothing for 10 s is forgotten.
	local pids=() pid
	for name in "${hostile[@]}"; do
		reads "$name" 20 &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || fail "one of dd"; done
	cat "$(at svc nrs_fairshare_stats)" >/out/yaml/stats.yaml
	for name in "${hostile[@]}"; do
		# The kernel keeps 15 bytes of a program's name.
		printf '%s.0' "${name:0:15}" | od -An -v -tx1 | tr -d ' \n'
		echo ' 20'
	done >/out/yaml/expected
	cat "$(at svc clients)" >/out/yaml/clients.yaml
	cat "$(at svc nrs_policies)" >/out/yaml/policies.yaml
	[ "$(grep -c entity: /out/yaml/stats.yaml)" -ge 25 ]
	rm -r /tmp/names
}

# Such names between groups and users: an entity goes by the path to it.
levels() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	client b /dev/nb0 svc jobid /uid:7/
	policy svc 'fairshare gid_then_jobid_then_uid_fair'
	mkdir -p /tmp/names /out/yaml
	local name n=0 device
	for name in 'a"b' 'b\c' 'c: d' '{f' '# h' "m'n" $'p\nq' $'\xff\xfe' ' u' 'uid:7' '\' '"' /; do
		n=$((n + 1)) device=a
		if [ "$name" = / ]; then name=slashes device=b; fi
		ln -sf /bin/busybox "/tmp/names/$name"
		# shellcheck disable=SC2016
		setpriv --reuid $((1000 + n)) --regid $((70 + n % 2)) --clear-groups bash -c 'exec -a dd "$@" 2>/dev/null' \
			bash "/tmp/names/$name" if=/dev/mapper/$device of=/dev/null bs=4k count=$n iflag=direct
		if [ $device = b ]; then printf /uid:7/; else printf '%s.%s' "$name" $((1000 + n)); fi | od -An -v -tx1 | tr -d ' \n'
		echo " $((70 + n % 2)) $((1000 + n)) $n"
	done >/out/yaml/levels-expected
	cat "$(at svc nrs_fairshare_stats)" >/out/yaml/levels.yaml
	[ "$(grep -c entity: /out/yaml/levels.yaml)" -ge 13 ]
	rm -r /tmp/names
}

# Counters count, a reset sets them to zero and they go on.
numbers() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare jobid_fair'
	mkdir -p /tmp/names
	reads alpha 50
	reads beta 30
	[ "$(field jobid:alpha.0 dispatched)" = 50 ] && [ "$(field jobid:beta.0 dispatched)" = 30 ] && [ "$(field jobid:beta.0 cost_pages)" = 30 ] ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
	[ "$(field jobid:alpha.0 queue_depth)" = 0 ]
	[ "$(counter a bytes)" = $((80 * 4096)) ]
	echo 1 >"$(at svc nrs_fairshare_stats_reset)"
	[ "$(field jobid:alpha.0 dispatched)" = 0 ] && [ "$(field jobid:beta.0 cost_pages)" = 0 ] || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	reads alpha 10
	[ "$(field jobid:alpha.0 dispatched)" = 10 ] || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	# By message as well.
	dm message a 0 service nrs_fairshare_stats_reset 1
	[ "$(field jobid:alpha.0 dispatched)" = 0 ]
}

# Many names, and statistics read while they come: no read fails, each is complete.
many() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	mkdir -p /out/yaml
	(for i in $(seq 1001 $((1000 + $1))); do echo "$i $SECONDS" && setpriv --reuid "$i" --clear-groups dd if=/dev/mapper/a of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; done) >/tmp/many &
	local reader=$! uid since now
	while kill -0 "$reader" 2>/dev/null; do
		cat "$(at svc nrs_fairshare_stats)" >/out/yaml/many.yaml
		# The first and the last line of each entity.
		[ "$(grep -c '^- entity:' /out/yaml/many.yaml)" = "$(grep -c '^  wait_us: .*}$' /out/yaml/many.yaml)" ]
	done
	wait "$reader"
	now=$SECONDS
	cat "$(at svc nrs_fairshare_stats)" >/out/yaml/many.yaml
	[ "$(wc -l </tmp/many)" = "$1" ]
	# Who was idle for 10 s may be gone, on a slow machine many of them.
	while read -r uid since; do
		[ $((now - since)) -gt 5 ] || grep -q "entity: \"uid:$uid\"" /out/yaml/many.yaml || fail "no $uid among $(grep -c entity: /out/yaml/many.yaml)"
	done </tmp/many
}

try 40 "names of all kinds" names
long try 40 "names of all kinds in the middle of a path" levels
long try 20 "counters and their reset" numbers
long try 60 "$(slow 200 50) users, statistics read while they come" many "$(slow 200 50)"
summary
