#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A thousand new entities each second, for 20 s, while weights change for all of them and statistics
# are read: tables stay bounded, memory is freed, and earlier entities are still served. Needs
# nrs-test load.
. /tests/nrs.sh

seconds=20
per_second=$(slow 1000 150)

# late CLIENT: Prints the 99th percentile of the client's queueing time, us.
late() {
	awk -v c="\"$1\"," \
		'$1 == "\"name\":" { hit = $2 == c } hit && /"withheld_us"/ { on = 1 }
			on && $1 == "\"p99\":" { print int($2); exit }' /tmp/load.json
}

# of_service NAME: Prints a number of the service.
of_service() {
	sed -n "1s/.* $1: \([0-9]*\).*/\1/p" "$(at svc clients)"
}

# entities [OPTION...]: Prints the number of entities of the service; OPTIONs are grep's.
entities() {
	grep -c "$@" '^- entity:' "$(at svc nrs_fairshare_stats)" || true
}

# churn SECONDS MODE RATE MICROSECONDS: Submits RATE requests per second that take MICROSECONDS
# each, each of a new job, beside a job that always has four requests.
churn() {
	policy svc "fairshare $2"
	nrs-test load --service svc --seconds "$1" --busy "$4" --drain \
		--client name=steady,jobid=steady,uid=5,depth=4 \
		--client "name=new,jobid=job.@,uid=6,rate=$3" >/tmp/load.json &
	load=$!
}

# churned SECONDS RATE LEAST: Waits for the end of churn; verifies that no request is lost, and that
# the old job was served at least LEAST times per second.
churned() {
	wait "$load" || fail "nrs-test load: $(tail -n 3 /tmp/load.json)"
	say "$(of_load /tmp/load.json new served) of $(of_load /tmp/load.json new submitted) new jobs" \
		"in $1 s, p99 $(late new) us; steady job: $(of_load /tmp/load.json steady served)," \
		"p99 $(late steady) us"
	[ "$(of_load /tmp/load.json new submitted)" -ge $(($1 * $2 / 2)) ] ||
		fail "only $(of_load /tmp/load.json new submitted) jobs arrived: the machine was too slow"
	[ "$(awk '$1 == "\"completed\":" { print $2 + 0 }' /tmp/load.json)" = \
		"$(awk '/"device":/ { on = 1 }
			on && $1 == "\"requests\":" { print $2 + 0 }' /tmp/load.json)" ] ||
		fail "$(tail -n 25 /tmp/load.json)"
	[ "$(of_load /tmp/load.json steady served)" -ge $(($1 * $3)) ] ||
		fail "the steady job was served $(of_load /tmp/load.json steady served) times in $1 s"
}

# memory: Prints the KiB of unreclaimable kernel memory, after deferred frees.
memory() {
	echo 3 >/proc/sys/vm/drop_caches
	sleep 1
	awk '/^(SUnreclaim|VmallocUsed):/ { n += $2 } END { print n }' /proc/meminfo
}

# weigh: Changes weights, of all jobs by patterns and of some by name, until the file is removed;
# writes the number of changes to /tmp/weighed.
weigh() {
	local i=0 j list
	while [ -e /tmp/churning ]; do
		i=$((i + 1)) list=
		for ((j = 0; j < 40; j++)); do list+=" jobid:job.$((i * 800 + j)):$((j + 1))"; done
		# Instances may be draining; any other error is a failure.
		set_to svc nrs_fairshare_weights \
			"jobid:job.*$((i % 10)):$((i % 7 + 1)),jobid:job.*:$((i % 5 + 1)) $list"
		[ $((i % 20)) != 0 ] || set_to svc nrs_fairshare_weights clear
		echo $i >/tmp/weighed
		sleep 0.8
	done
}

# inspect: Reads statistics until the file is removed, and verifies that they are complete. Writes
# the largest number of entities to /tmp/most.
inspect() {
	local most=0 reads=0 n
	while [ -e /tmp/churning ]; do
		cat "$(at svc nrs_fairshare_stats)" >/tmp/stats
		n=$(grep -c '^- entity:' /tmp/stats) || true
		[ "$n" = "$(grep -c '^  wait_us: .*}$' /tmp/stats)" ] ||
			fail "statistics end early: $(tail -n 3 /tmp/stats)"
		[ "$n" -le "$most" ] || most=$n
		reads=$((reads + 1))
		echo "$most $reads" >/tmp/most
		sleep 2
	done
}

# Verifies a table with room for all jobs: almost all get their own entity, and all are evicted in
# the end.
room() {
	# One user may fill three quarters of the table.
	module classes_max=32768
	mkdir /sys/kernel/config/nrs/svc
	echo 8 >/sys/kernel/config/nrs/svc/slots
	local before watchers=() after most reads
	# One-time allocations happen before the measurement.
	churn 2 uid_then_jobid_fair "$per_second" 2000
	wait "$load"
	before=$(memory)
	touch /tmp/churning
	churn "$seconds" uid_then_jobid_fair "$per_second" 2000
	weigh &
	watchers+=($!)
	inspect &
	watchers+=($!)
	churned "$seconds" "$per_second" "$(slow 10 5)"
	rm /tmp/churning
	wait "${watchers[0]}" && wait "${watchers[1]}" || fail "weights or statistics"
	read -r most reads </tmp/most
	say "at most $most entities in $reads readings, $(cat /tmp/weighed) changes of weights," \
		"overflow $(of_service overflow), no_memory $(of_service no_memory)"
	[ "$most" -le 24576 ]
	[ "$most" -ge "$per_second" ]
	# Overflow only occurs if memory arrives late. On a machine that is too slow, more requests are
	# queued than the table has room for.
	[ "$(late new)" -gt 5000000 ] ||
		[ "$(of_service overflow)" -le $((seconds * per_second / 50)) ] ||
		fail "$(head -n 1 "$(at svc clients)")"
	set_to svc nrs_fairshare_weights clear
	# While the service is in use, entities idle for ten seconds are evicted.
	nrs-test load --service svc --seconds 300 \
		--client name=steady,jobid=steady,uid=5,rate=10 >/dev/null &
	load=$!
	# Reading all of them takes half a minute.
	wait_for 120 '[ "$(entities -m 5)" -le 4 ]' ||
		fail "$(entities) entities are left"
	kill "$load"
	wait "$load" || true
	rmdir /sys/kernel/config/nrs/svc
	after=$(memory)
	say "memory: $before KiB before, $after KiB after"
	[ $((after - before)) -lt 2048 ] || fail "$((after - before)) KiB were not freed"
}

# Verifies a table that is too small for the jobs of one user, with two nodes per job: another
# user's job has the same share and queueing time as beside one job of that user.
overflow() {
	module classes_max=$((per_second * 3 / 4))
	local jobs share=() late=() n
	for jobs in job job.@; do
		mkdir /sys/kernel/config/nrs/svc
		echo 8 >/sys/kernel/config/nrs/svc/slots
		policy svc "fairshare uid_then_jobid_fair"
		# Half of the arriving requests can be served, so the queue grows.
		nrs-test load --service svc --seconds 8 --busy $((14000000 / per_second)) --drain \
			--client name=steady,jobid=steady,uid=5,depth=16 \
			--client "name=new,jobid=$jobs,uid=6,rate=$per_second" >/tmp/load.json &
		load=$!
		sleep 7
		n=$(of_service overflow)
		[ "$(entities)" -le $((per_second * 3 / 4)) ] || fail "$(entities) entities"
		wait "$load" || fail "nrs-test load: $(tail -n 3 /tmp/load.json)"
		late+=("$(late steady)")
		say "$jobs: overflow $n, steady job: $(of_load /tmp/load.json steady served)," \
			"p99 $(late steady) us"
		[ "$jobs" = job ] || [ "$n" -gt "$per_second" ] || fail "the table did not overflow: $n"
		rmdir /sys/kernel/config/nrs/svc
		share+=("$(of_load /tmp/load.json steady served)")
	done
	within 5 "${share[0]}" "${share[1]}" || fail "served ${share[*]}"
	more 1 $((2 * late[0])) "${late[1]}" || fail "p99, us: ${late[*]}"
	rmmod nrs
}

long try $((seconds + 200)) \
	"$per_second new jobs per second for $seconds s, with new weights and reads of statistics" room
long try 60 "more jobs of one user than the table has room for" overflow
remarks '^([0-9]+ of |at most|memory:|job)'
summary
