#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The test machine itself: a null_blk disk under dm-linear takes I/O from fio; data written comes back.
. /tests/lib.sh

check "null_blk disk" null_blk_create nb0 size=64 memory_backed=1 irqmode=2 completion_nsec=100000 hw_queue_depth=8
check_eq "its size in sectors" 131072 "$(sectors /dev/nb0)"
check "dm-linear on it" dm_create lin "0 131072 linear /dev/nb0 0"

fio --name=verify --filename=/dev/mapper/lin --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=8 --io_size=4m --size=16m \
	--verify=crc32c --do_verify=1 --minimal >/out/fio.txt 2>&1
check_eq "fio writes and verifies" 0 $?
check "fio reported on its job" grep -q '^3;fio-' /out/fio.txt

check "a bad value is refused with EINVAL" expect_errno EINVAL /sys/kernel/config/nullb/nb0/size nonsense
check "ext4 on it" mkfs.ext4 -q /dev/mapper/lin
mkdir -p /mnt/lin
check "mount" mount -t ext4 /dev/mapper/lin /mnt/lin
check "write a file and sync" sh -c 'echo hello >/mnt/lin/file && sync'
check "umount" umount /mnt/lin
check "dm_remove" dm_remove lin
check "the node is gone" test ! -e /dev/mapper/lin
check "null_blk_remove" null_blk_remove nb0
check "cgroup2 has the io controller" grep -qw io /sys/fs/cgroup/cgroup.controllers
if [ -n "${1:-}" ]; then
	check "the module loads" load_nrs
	check "the module unloads" rmmod nrs
fi
summary
