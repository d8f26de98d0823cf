#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/initramfs.sh RELEASE MODULES_DIR
#
# Makes the part of the test machine's initramfs that rarely changes, tools and kernel modules, as one cpio archive
# kept in $NRS_CACHE/initramfs by what went into it, and prints its path. Called by scripts/vm.sh.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:---help} in --help | -h) usage && exit ;; esac
[ -n "${NRS_IN_ROOT:-}" ] || exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"
release=$1 modules=$2

tools=(bash blockdev blkdiscard chrt dmsetup e2fsck fallocate fio git ionice kmod losetup mke2fs mkswap prlimit setpriv
	sqlite3 stdbuf strace tar taskset tune2fs unshare)
# With what they depend on; a name that is built in, or that this kernel lacks, costs nothing.
wanted=(virtio_pci virtio_blk configfs dm-mod dm-flakey dm-delay null_blk loop brd ext4 mq-deadline bfq kyber-iosched)

key=$({ cat "$0" "$modules/modules.dep" && echo "$release" && cat "$NRS_CACHE/root.stamp" 2>/dev/null; } | hash_of)
dir=$NRS_CACHE/initramfs
archive=$dir/base-$release-$key.cpio
[ -f "$archive" ] && echo "$archive" && exit
lock initramfs
[ -f "$archive" ] && echo "$archive" && exit
log "initramfs: making the base for $release"
mkdir -p "$dir"
rm -rf "$dir/tree"
tree=$dir/tree
mkdir -p "$tree"/{bin,dev,etc,lib,lib64,proc,sys,run,tmp,root,out,tests,usr/lib,mnt,var}
ln -s bin "$tree/sbin"
ln -s ../bin "$tree/usr/bin"
ln -s ../bin "$tree/usr/sbin"

cp /bin/busybox "$tree/bin/busybox"
for applet in $(/bin/busybox --list); do
	[ "$applet" = busybox ] || ln -sf busybox "$tree/bin/$applet"
done
libs=()
for tool in "${tools[@]}"; do
	path=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v "$tool") || continue
	rm -f "$tree/bin/$tool"
	cp -L "$path" "$tree/bin/$tool"
	mapfile -t -O "${#libs[@]}" libs < <(ldd "$path" 2>/dev/null | grep -oE '/[^ ]+' || true)
done
libs+=(/usr/libexec/coreutils/libstdbuf.so)
for lib in "${libs[@]}"; do
	[ -f "$lib" ] && [ ! -f "$tree$lib" ] || continue
	mkdir -p "$tree${lib%/*}"
	cp -L "$lib" "$tree$lib"
done
for name in modprobe insmod rmmod lsmod depmod modinfo; do ln -sf kmod "$tree/bin/$name"; done
for name in mkfs.ext4 mkfs.ext2; do ln -sf mke2fs "$tree/bin/$name"; done
for name in fsck.ext4 fsck.ext2; do ln -sf e2fsck "$tree/bin/$name"; done
cp /etc/mke2fs.conf "$tree/etc/"
printf 'root:x:0:0::/root:/bin/bash\nnobody:x:65534:65534::/:/bin/sh\n' >"$tree/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"

target=$tree/lib/modules/$release
mkdir -p "$target/kernel"
for module in "${wanted[@]}"; do
	modprobe -d "${modules%/lib/modules/*}" -S "$release" -D "$module" 2>/dev/null || true
done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r file; do
	name=$(basename "$file")
	case $name in
	*.xz) xz -dc "$file" >"$target/kernel/${name%.xz}" ;;
	*.zst) zstd -qdc "$file" >"$target/kernel/${name%.zst}" ;;
	*) cp "$file" "$target/kernel/$name" ;;
	esac
done
for list in modules.builtin modules.builtin.modinfo modules.order; do
	if [ -f "$modules/$list" ]; then cp "$modules/$list" "$target/"; else : >"$target/$list"; fi
done
depmod -b "$tree" "$release"
(cd "$tree" && find . | LC_ALL=C sort | cpio -o -H newc --quiet --reproducible) >"$archive.tmp"
find "$dir" -name "base-$release-*.cpio" -delete
mv "$archive.tmp" "$archive"
rm -rf "$tree"
echo "$archive"
