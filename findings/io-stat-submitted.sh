#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: io.stat counts what was submitted; /sys/block/DISK/stat counts what has completed
# guess: Both count completed requests, so their difference is rounding.
# so:    A read of 1 MiB that the disk has not answered is complete in the cgroup's io.stat at once.
#        Shares and rates from io.stat are too high by what is in flight.
# read:  block/blk-cgroup.c (blk_cgroup_bio_start), block/blk-mq.c (blk_account_io_done)
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 irqmode=2 completion_nsec=3000000000
before=$(awk '{ print $3 }' /sys/block/nb0/stat)
group a reads /dev/nb0 1 &
until grep -q rbytes /sys/fs/cgroup/a/io.stat 2>/dev/null; do sleep 0.05; done
sleep 0.5
is "bytes in io.stat, none answered" "$(counted a rbytes nb0)" 1048576
is "sectors in /sys/block/nb0/stat" "$(($(awk '{ print $3 }' /sys/block/nb0/stat) - before))" 0
wait
is "sectors after the answer" "$(($(awk '{ print $3 }' /sys/block/nb0/stat) - before))" 2048
finish
