#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Configurations of qbm that must be refused: each with its error, the line of what is wrong and why, and nothing changed.
. /tests/nrs.sh

# configure [BYTES]: what /tmp/plan holds, in pieces of that size, in one unless told; what is said goes to /tmp/said.
configure() {
	dd if=/tmp/plan of="$(at svc nrs_qbm_config)" bs="${1:-512k}" conv=notrunc 2>/tmp/said
}

# text TEXT: makes it /tmp/plan, with a line end behind it; \n and the like are characters.
text() {
	printf '%b\n' "$1" >/tmp/plan
}

# refuses ERRNO [BYTES]: what /tmp/plan holds, in pieces of that size.
refuses() {
	if configure "${2:-}"; then fail "taken, should give $1: $(head -c 300 /tmp/plan)"; fi
	case $1:$(</tmp/said) in
	EINVAL:*'Invalid argument'* | ENOENT:*'No such file or directory'* | EEXIST:*'File exists'* | ENAMETOOLONG:*'name too long'* | \
		ENOSPC:*'No space left on device'* | E2BIG:*'Argument list too long'*) ;;
	*) fail "should give $1: $(</tmp/said)" ;;
	esac
}

# A device, qbm on both heads, and a configuration.
setup() {
	module
	lower nb0
	client a /dev/nb0 svc
	policy svc qbm
	text 'by uid\ntune slow=10s\ngroup all capacity=10MB/s reserve_first_come=10%\nclient 1001 class=first_come min=2MB/s\n'
	configure || fail "$(cat /tmp/said)"
	[ -z "$(<"$(at svc nrs_qbm_config_error)")" ] || fail "an error without one"
	before=$(settings svc)
	case $before in *'client 1001 class=first_come min=2MB/s'*) ;; *) fail "not there: $before" ;; esac
}

# Lines ERRNO|LINE|WORDS OF THE REASON|TEXT
texts() {
	setup
	local errno line words text said tried=0
	while IFS='|' read -r errno line words text; do
		text "$text"
		refuses "$errno"
		said=$(<"$(at svc nrs_qbm_config_error)")
		case $said in
		"line $line: "*"$words"*) ;;
		*) fail "'$text': said '$said', not 'line $line: $words'" ;;
		esac
		unchanged "$text"
		tried=$((tried + 1))
		# The log has the same words; of many in a row it tells some only.
		[ "$tried" != 1 ] || dmesg | tail -n 3 | grep -qF "nrs: service svc: refused: $said" ||
			fail "the log does not say '$said': $(dmesg | tail -n 3)"
	done </tmp/texts
	say "$tried tried"
	# In pieces the first wrong one ends it.
	text 'by uid\nclient 7 class=fs min=1MB\ngroup\nclient 8 class=fs min=1MB\n'
	refuses EINVAL 5
	said=$(<"$(at svc nrs_qbm_config_error)")
	[ "$said" = "line 3: the group's name is missing" ] || fail "$said"
	unchanged pieces
	# Without its line end the last line counts when the file is closed, and nobody but the file tells.
	printf 'by uid\ngroup' >/tmp/plan
	configure || true
	said=$(<"$(at svc nrs_qbm_config_error)")
	[ "$said" = "line 2: the group's name is missing" ] || fail "$said"
	unchanged "no line end"
	# What is taken empties the file.
	text 'group all capacity=10MB/s\n'
	configure || fail "$(cat /tmp/said)"
	[ -z "$(<"$(at svc nrs_qbm_config_error)")" ] || fail "the error stays"
	[ "$(<"$(at svc nrs_qbm_config)")" = 'group all capacity=10MB/s' ] || fail "$(<"$(at svc nrs_qbm_config)")"
}

# Too many of something, too long, no text.
sizes() {
	setup
	local i said
	for ((i = 0; i < 65; i++)); do echo "group g$i capacity=1MB target=$i"; done >/tmp/plan
	refuses ENOSPC
	said=$(<"$(at svc nrs_qbm_config_error)")
	[ "$said" = 'line 65: there are 64 groups already' ] || fail "$said"
	unchanged groups
	{ echo by uid && for ((i = 0; i < 4097; i++)); do echo "client $i class=fs min=1MB"; done; } >/tmp/plan
	refuses ENOSPC
	said=$(<"$(at svc nrs_qbm_config_error)")
	[ "$said" = 'line 4098: there are 4096 lines of clients already' ] || fail "$said"
	unchanged clients
	# As many as there can be are taken, and shown as they were written.
	{ echo by uid && for ((i = 0; i < 4096; i++)); do echo "client $i class=fair_share min=1MB/s"; done; } >/tmp/plan
	configure || fail "$(cat /tmp/said)"
	cmp /tmp/plan "$(at svc nrs_qbm_config)" || fail "not what was written"
	text 'by uid\ntune slow=10s\ngroup all capacity=10MB/s reserve_first_come=10%\nclient 1001 class=first_come min=2MB/s\n'
	configure || fail "$(cat /tmp/said)"
	unchanged "and back"
	head -c 262145 /dev/zero | tr '\0' '\n' >/tmp/plan
	refuses E2BIG
	unchanged "a long text"
	{ head -c 4096 /dev/urandom && echo; } >/tmp/plan
	if configure; then fail "noise was taken"; fi
	printf 'by uid\ngroup \377 capacity=5MB\n' >/tmp/plan
	refuses EINVAL
	unchanged "no text"
}

# Lines ERRNO|FILE|VALUE
parameters() {
	setup
	local errno file text tried=0
	while IFS='|' read -r errno file text; do
		expect_errno "$errno" "$(at svc "$file")" "$text"
		unchanged "$file=$text"
		tried=$((tried + 1))
	done </tmp/parameters
	say "$tried tried"
	# Nothing to see without qbm, but the configuration is there.
	policy svc fifo
	refused ENODEV cat "$(at svc nrs_qbm_status)"
	refused ENODEV cat "$(at svc nrs_qbm_stats)"
	grep -q 'client 1001' "$(at svc nrs_qbm_config)" || fail "gone with the policy"
	# It is checked without qbm, too.
	text 'by uid\ngroup all\n'
	refuses EINVAL
	[ "$(<"$(at svc nrs_qbm_config_error)")" = 'line 2: capacity is missing' ] || fail "$(<"$(at svc nrs_qbm_config_error)")"
	policy svc qbm
	unchanged "stop and start"
}

# Lines ERRNO|LINE|WORDS for dm message: statements count.
messages() {
	setup
	local errno line words said
	while IFS='|' read -r errno line words; do
		# shellcheck disable=SC2086
		refused "$errno" dm message a 0 service nrs_qbm_config $words
		said=$(<"$(at svc nrs_qbm_config_error)")
		case $said in "line $line: "*) ;; *) fail "'$words': $said" ;; esac
		unchanged "message $words"
	done </tmp/messages
	refused EACCES dm message a 0 service nrs_qbm_status x
	refused EACCES dm message a 0 service nrs_qbm_config_error x
	dm message a 0 service nrs_qbm_config 'by uid; group all capacity=40MB/s; client 5 class=ls min=10%'
	[ "$(<"$(at svc nrs_qbm_config)")" = $'by uid\ngroup all capacity=40MB/s\nclient 5 class=low_share min=10%' ] ||
		fail "$(<"$(at svc nrs_qbm_config)")"
}

# Under load: what runs goes on.
loaded() {
	setup
	local got all_ended all_bytes all_held stamp time busy config
	config=$(<"$(at svc nrs_qbm_config)")
	load a as=1000 --bs=16k --time_based --runtime=60 >/tmp/load.txt 2>&1 &
	saturated a
	for _ in 1 2 3 4 5 6 7 8; do
		text 'by uid\ngroup all capacity=1MB/s\nclient 5 class=fs min=2MB/s\n'
		refuses EINVAL
		[ "$(<"$(at svc nrs_qbm_config)")" = "$config" ] || fail "changed under load: $(<"$(at svc nrs_qbm_config)")"
		sleep 0.5
	done
	gather 4 bytes
	# Somebody who is not listed has all of it but the reserve and what a request is large.
	within "$(slow 10 20)" "$((got[0] * 1000 / (time / 1000)))" 9000000
	kill $(pidof fio)
	wait || true
}

cat >/tmp/texts <<'END'
EINVAL|1|expected by, tune|nonsense
EINVAL|2|print|# fine\nby\0001nid
EINVAL|1|print|group a capacity=1MB\0303\0251
EINVAL|2|before all clients|client 0@lo class=fc min=1MB\nby nid
EINVAL|2|fast is shorter than period|tune fast=100ms\ntune period=200ms
EINVAL|1|above the capacity|default min=20MB\ngroup a capacity=10MB
ENAMETOOLONG|1|63|group aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa capacity=1MB
EINVAL|1|capacity is not a size|group a capacity=fast
EINVAL|1|reserves together|group a capacity=1MB reserve_mover=60% reserve_low_share=401KB
EEXIST|2|this target|group a capacity=1MB target=8:1\ngroup b capacity=1MB target=8:1
ENOENT|1|that group|client 0@lo class=fc min=1MB group=a
EINVAL|1|no NID|client 10.0.0.[5-1]@tcp class=fc min=1MB
EEXIST|3|already|by uid\nclient 5 class=fc min=1MB\nclient 05 class=fs min=2MB
EINVAL|2|capacity is missing|by nid; group a
END

cat >/tmp/parameters <<'END'
EINVAL|nrs_policies|qbm nid
EINVAL|nrs_policies|qbm reg nid
EINVAL|nrs_qbm_clients_max|15
EINVAL|nrs_qbm_clients_max|16385
EINVAL|nrs_qbm_clients_max|-1
EINVAL|nrs_qbm_clients_max|many
EINVAL|nrs_qbm_clients_max|
EINVAL|nrs_qbm_status|1
EINVAL|nrs_qbm_stats|1
EINVAL|nrs_qbm_config_error|1
END

cat >/tmp/messages <<'END'
EINVAL|1|by
EINVAL|2|by uid; group all
EINVAL|3|by uid; group all capacity=5MB; client 7 class=fs min=6MB
EEXIST|2|group all capacity=5MB; group all capacity=5MB target=1
ENOENT|1|client 0@lo class=fs min=1MB group=all
END

long try 90 "$(wc -l </tmp/texts) wrong configurations" texts
long try 60 "too many, too long, no text" sizes
long try 40 "$(wc -l </tmp/parameters) wrong parameters" parameters
long try 30 "wrong configurations by message" messages
long try 40 "refused under load" loaded
summary
