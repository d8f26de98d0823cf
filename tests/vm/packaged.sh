#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A module built elsewhere, in this kernel: runs debian/tests/module, copied to /bin/packaged, as on
# a machine with the packages.
. /tests/nrs.sh

works() {
	mkdir -p /etc/modprobe.d
	echo 'install nrs /bin/insmod /nrs.ko' >/etc/modprobe.d/nrs.conf
	# busybox's sh would use its own losetup.
	bash /bin/packaged
}

try 60 "a device under the packaged module" works
summary
