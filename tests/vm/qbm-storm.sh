#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Configurations and policies change under load, with suspends and drains: no request is lost,
# duplicated or damaged, and all clients make progress.
. /tests/nrs.sh

names=(a b c d)

# frozen DEVICE: Stops the device's requests for a moment.
frozen() {
	if [ "$front" = dm ]; then dm suspend "$1" && dm resume "$1"; else drain "$1"; fi
}

# change NUMBER: Performs one of an administrator's actions.
change() {
	local name text
	case $1 in
	0)
		text='by device;group one capacity=40MB/s;client a class=fc min=10MB/s'
		text+=';client b class=ls min=10MB/s;client c class=mover min=10MB/s'
		set_to svc nrs_qbm_config "$text"
		;;
	1) policy svc "qbm hp" ;;
	2)
		set_to svc nrs_qbm_config \
			'by uid;group one capacity=40MB/s strategy=mover;client 1002 class=mover min=10MB/s'
		;;
	3) policy svc qbm ;;
	4) drain "${names[RANDOM % 4]}" ;;
	5)
		text='by uid;tune period=10ms;group all capacity=400MB/s'
		set_to svc nrs_qbm_config "$text;default class=fs min=1MB/s max=4MB/s"
		;;
	6) policy svc "tbf uid" ;;
	7) set_to svc nrs_qbm_clients_max "$((16 + RANDOM % 100))" ;;
	8) policy svc "qbm reg" ;;
	9) frozen "${names[RANDOM % 4]}" ;;
	10)
		text='by uid;group all capacity=40MB/s reserve_low_share=5MB/s'
		set_to svc nrs_qbm_config "$text;default class=low_share min=1MB/s max=4MB/s"
		;;
	11) policy svc fifo ;;
	12) set_to svc nrs_qbm_config 'by jobid' ;;
	esac
}

# storm ROUNDS: Makes ROUNDS changes in a mixed order, each equally often.
storm() {
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=500000
	slow_lower nb1 1000000
	local name round seen reader
	for name in a b; do sharer $name /dev/nb0 svc; done
	for name in c d; do sharer $name /dev/nb1 svc; done
	echo 6 >"$(at svc slots)"
	set_to svc nrs_tbf_rate 500
	set_to svc nrs_qbm_config \
		'by uid;group all capacity=40MB/s;default class=fair_share min=1MB/s max=4MB/s'
	policy svc qbm
	writing a --uid=1001 --gid=101 --name=two --offset=32m --uid=1002 --gid=102 --name=three \
		--offset=64m --uid=1003 --gid=101
	for name in c d; do
		load $name as=1002 --iodepth=4 --rate_iops="$(slow 2000 40)" --time_based \
			--runtime=600 >/dev/null 2>&1 &
	done
	for name in a c d; do
		wait_for 60 "[ \"\$(counter $name ended)\" -ge 20 ]" || fail "$(status $name)"
	done
	(while :; do
		# Without the policy there is no status.
		for file in nrs_qbm_status nrs_qbm_stats nrs_qbm_config nrs_policies clients; do
			cat "$(at svc $file)" || true
		done >/tmp/seen 2>/dev/null
		sleep "$(slow 0.05 1)"
	done) &
	reader=$!
	for ((round = 0; round < $1; round++)); do
		change $((round * 5 % 13))
		seen=$(counter a ended)
		wait_for 20 "[ \"\$(counter a ended)\" -gt $seen ]" ||
			fail "no request completes after $((round * 5 % 13)): $(status)" \
				"$(cat "$(at svc nrs_policies)")"
	done
	kill $reader
	wait $reader 2>/dev/null || true
	set_to svc nrs_qbm_config \
		'by uid;group all capacity=40MB/s;default class=fair_share min=1MB/s max=4MB/s'
	policy svc qbm
	for name in a c d; do
		seen=$(counter $name ended)
		wait_for 20 "[ \"\$(counter $name ended)\" -gt $((seen + 5)) ]" ||
			fail "$name makes no progress: $(status $name) $(cat "$(at svc nrs_qbm_status)")"
	done
	written
	for name in $(pidof fio); do kill -TERM "$name" 2>/dev/null || true; done
	wait_for 60 '! pidof fio >/dev/null' || fail "fio does not end: $(status)"
	for name in a b c d; do balanced $name; done
	say "$1 rounds, $(counter a ended) requests of the writers"
}

long try 150 "configurations and policies change under load" storm "$(slow 65 13)"
summary
