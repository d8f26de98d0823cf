#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/initramfs.sh RELEASE MODULES_DIR
#
# Builds the part of the test machine's initramfs that rarely changes: tools and kernel modules.
# Prints the path of a directory in $NRS_CACHE/initramfs, whose name depends on the contents:
# base.cpio is for every machine, more.cpio (appended on request) for few tests. Called by
# scripts/vm.sh.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:---help} in --help | -h) usage && exit ;; esac
[ -n "${NRS_IN_ROOT:-}" ] || exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"
release=$1 modules=$2

tools=(bash blockdev blkdiscard chrt dmsetup e2fsck fallocate ionice losetup mke2fs mkswap prlimit
	setpriv tar taskset tune2fs unshare)
# Programs that exercise file systems, another file system, and a server: many megabytes, for few
# tests.
more=(dbench fs_mark git ksmbd.adduser ksmbd.mountd mkfs.xfs nbdkit sqlite3 stress-ng xfs_io
	xfs_repair)
more_modules=(
	xfs nfsd nfsv4 dm-crypt crypto_null nvme-loop raid456 raid1 dm-raid dm-integrity dm-thin-pool
	dm-snapshot target_core_iblock tcm_loop ksmbd cifs
)
wanted=(
	virtio_pci virtio_blk virtio_net configfs dm-mod dm-flakey dm-delay null_blk nbd loop brd ext4
	mq-deadline bfq kyber-iosched scsi_debug sd_mod nvme-tcp nvmet-tcp overlay dm-multipath
	dm-round-robin
)

fio=$("$NRS_SCRIPTS/fio.sh" --print)
key=$({
	cat "$0" "$NRS_SCRIPTS/fio.sh" "$fio" "$modules/modules.dep"
	echo "$release"
	cat "$NRS_CACHE/root.stamp" 2>/dev/null || true
} | hash_of)
dir=$NRS_CACHE/initramfs
result=$dir/$release-$key
# done_before: Prints the result and exits if it exists.
done_before() {
	[ ! -d "$result" ] || { touch "$result" && echo "$result" && exit; }
}
done_before
lock initramfs
done_before
log "initramfs: making it for $release"
rm -rf "$dir/tmp"
tree=$dir/tmp/tree
mkdir -p "$tree"/{bin,dev,etc,lib,lib64,proc,sys,run,tmp,root,out,tests,usr/lib,mnt,var}
ln -s bin "$tree/sbin"
ln -s ../bin "$tree/usr/bin"
ln -s ../bin "$tree/usr/sbin"

cp /bin/busybox "$tree/bin/busybox"
for applet in $(/bin/busybox --list); do
	[ "$applet" = busybox ] || ln -sf busybox "$tree/bin/$applet"
done

# add TREE TOOL...: Copies programs, and those of their libraries that the base does not have.
add() {
	local to=$1 tool path lib
	shift
	mkdir -p "$to/bin"
	for tool; do
		path=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v "$tool") || continue
		tool=${tool##*/}
		rm -f "$to/bin/$tool"
		cp -L "$path" "$to/bin/$tool"
		for lib in $(ldd "$to/bin/$tool" 2>/dev/null | grep -oE '/[^ ]+'); do
			[ -f "$lib" ] && [ ! -f "$tree$lib" ] && [ ! -f "$to$lib" ] || continue
			mkdir -p "$to${lib%/*}"
			cp -L "$lib" "$to$lib"
		done
	done
}

# install_modules TREE MODULE...: Copies kernel modules with their dependencies. Names of built-in
# modules, and of modules that this kernel lacks, are ignored.
install_modules() {
	local to=$1/lib/modules/$release/kernel module file name
	shift
	mkdir -p "$to"
	for module; do
		modprobe -d "${modules%/lib/modules/*}" -S "$release" -D "$module" 2>/dev/null || true
	done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r file; do
		name=$(basename "$file")
		case $name in
		*.xz) xz -dc "$file" >"$to/${name%.xz}" ;;
		*.zst) zstd -qdc "$file" >"$to/${name%.zst}" ;;
		*) cp "$file" "$to/$name" ;;
		esac
	done
}

# library TREE NAME: Copies a library for programs that are added later.
library() {
	local file
	file=$(ldconfig -p | awk -v name="$2" '$1 == name { print $NF; exit }')
	mkdir -p "$1${file%/*}"
	cp -L "$file" "$1$file"
}

# archive TREE NAME: Writes the tree as the archive NAME.
archive() {
	(cd "$1" && find . | LC_ALL=C sort | cpio -o -H newc --quiet --reproducible) >"$dir/tmp/$2.cpio"
	rm -rf "$1"
}

mkdir -p "$tree/lib"
cp -a "${fio%/*}/lib/." "$tree/lib/"
add "$tree" "$fio" kmod "${tools[@]}"
# For nrs-agent.
library "$tree" libgcc_s.so.1
add "$dir/tmp/more" "${more[@]}"
# A run reads the whole file, and the rest repeats it.
mkdir -p "$dir/tmp/more/usr/share/dbench"
head -n 20000 /usr/share/dbench/client.txt >"$dir/tmp/more/usr/share/dbench/client.txt"
nbdkit=/usr/lib/x86_64-linux-gnu/nbdkit
for name in plugins/nbdkit-file-plugin.so filters/nbdkit-delay-filter.so; do
	mkdir -p "$dir/tmp/more$nbdkit/${name%/*}"
	cp "$nbdkit/$name" "$dir/tmp/more$nbdkit/$name"
done
install_modules "$dir/tmp/more" "${more_modules[@]}"
for name in modprobe insmod rmmod lsmod; do ln -sf kmod "$tree/bin/$name"; done
for name in mkfs.ext4 mkfs.ext2; do ln -sf mke2fs "$tree/bin/$name"; done
for name in fsck.ext4 fsck.ext2; do ln -sf e2fsck "$tree/bin/$name"; done
cp /etc/mke2fs.conf "$tree/etc/"
printf 'root:x:0:0::/root:/bin/bash\nnobody:x:65534:65534::/:/bin/sh\n' >"$tree/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"

target=$tree/lib/modules/$release
install_modules "$tree" "${wanted[@]}"
for list in modules.builtin modules.builtin.modinfo modules.order; do
	if [ -f "$modules/$list" ]; then cp "$modules/$list" "$target/"; else : >"$target/$list"; fi
done
# Dependencies of all modules; the modules of few tests may be absent.
mkdir -p "$dir/tmp/all/lib/modules"
cp -r "$target" "$dir/tmp/all/lib/modules/"
cp -r "$dir/tmp/more/lib/modules/$release/kernel" "$dir/tmp/all/lib/modules/$release/"
depmod -b "$dir/tmp/all" "$release"
cp "$dir/tmp/all/lib/modules/$release"/modules.* "$target/"
rm -rf "$dir/tmp/all"
archive "$dir/tmp/more" more
archive "$tree" base
# Kept for an hour: a machine may still be about to read a directory that was in use until now.
find "$dir" -mindepth 1 -maxdepth 1 -name "*$release-*" -mmin +60 -exec rm -rf {} +
mv "$dir/tmp" "$result"
echo "$result"
