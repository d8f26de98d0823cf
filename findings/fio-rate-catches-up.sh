#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: fio's rate is a mean since the start: after a pause it runs at full speed until it is made
#        up for
# guess: `rate_iops=100` never issues much more than 100 requests per second; a job that could not
#        run for two seconds has lost 200 requests.
# so:    It issues them all at once when it can run again, and reports 100 per second at the end, as
#        if nothing had been. A scheduler that holds such a load back meets a burst afterwards, and
#        no total of fio shows either.
# read:  fio(1), rate_process: `thinktime` and pauses are caught up; fio's io_u.c/backend.c
#        (usec_for_io: the next start is a function of all bytes so far)
. "${0%/*}/lib.sh"
system fio,procps
version fio "$(chroot "$root" fio --version)" 'fio-3.39*'
chroot "$root" fio --name=x --filename=/file --size=16m --rw=randread --bs=4k --ioengine=psync \
	--rate_iops=100 --time_based --runtime=7 --write_iops_log=/log --log_avg_msec=500 --thread \
	--minimal >"$dir/out" &
job=$!
sleep 2.5
# fio is the child of chroot only if chroot forks, which it does not.
kill -STOP $job
sleep 2
kill -CONT $job
wait $job
holds "requests per second at the end" "$(cut -d';' -f8 "$dir/out")" 97 103
peak=$(awk -F', *' '$2 > peak { peak = $2 } END { print peak + 0 }' "$root"/log_iops.1.log)
holds "most per second in half a second" "$peak" 300 700
finish
