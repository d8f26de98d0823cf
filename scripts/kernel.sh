#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/kernel.sh [SERIES] [--print | --refresh]
#
# Gets the stock kernel that the module is built for and tested in: Debian's cloud kernel from
# trixie-backports, the newest point release of the first supported series that the archive has, or
# of SERIES; SERIES-rt is Debian's real-time kernel of the series. Unpacks the kernel (nothing is
# installed) and rebuilds the Rust metadata that Debian's header packages lack, from the same
# source, configuration and compilers. An earlier choice is kept until --refresh, because the
# archive drops old sources.
#
#   --print     print shell variables for the chosen kernel (fails if there is none yet):
#               NRS_KREL release, NRS_KBUILD directory for `make -C`, NRS_VMLINUZ image,
#               NRS_MODULES modules, NRS_KSRC source
#   --refresh   look for a newer kernel even if one was chosen before
#
# debian/dkms/module.sh has the list of supported series; NRS_KERNEL_SERIES overrides it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

args=("$@")
base=$NRS_CACHE/kernel
current=$base/current
series_list=${NRS_KERNEL_SERIES:-$(supported_series)}
suffix=-cloud-amd64
case ${1:-} in
[0-9]*-rt) series_list=${1%-rt} suffix=-rt-amd64 current+=-$1 && shift ;;
[0-9]*) series_list=$1 current+=-$1 && shift ;;
esac

print_variables() {
	local rel=$1
	[ -f "$base/$rel/build.stamp" ] || return 1
	printf 'NRS_KREL=%q\nNRS_KBUILD=%q\nNRS_VMLINUZ=%q\nNRS_MODULES=%q\nNRS_KSRC=%q\n' "$rel" \
		"$base/$rel/build" "$base/$rel/vmlinuz" "$base/$rel/image/usr/lib/modules/$rel" \
		"$base/$rel/source"
}

refresh=
case ${1:-} in
--help | -h) usage && exit ;;
--print)
	[ -f "$current" ] && print_variables "$(cat "$current")" && exit
	die "no kernel of series $series_list yet: run scripts/kernel.sh"
	;;
--refresh) refresh=1 ;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac

# Metadata of another version of rust-metadata.sh is rebuilt.
metadata=$(hash_of <"$NRS_SCRIPTS/rust-metadata.sh")
if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/root.sh"
	# Nothing to do if the root is unchanged since the metadata was built.
	if [ -z "$refresh" ] && [ -f "$current" ] && [ -f "$NRS_CACHE/root.stamp" ] &&
		[ "$base/$(cat "$current")/build.stamp" -nt "$NRS_CACHE/root.stamp" ] &&
		stamp_is "$base/$(cat "$current")/metadata.stamp" "$metadata"; then
		exit
	fi
	archive_sources
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "${args[@]}"
fi
lock kernel
mkdir -p "$base"

# --- Debian's archive, with an apt state of its own -----------------------------------------------
archive_apt

# archive_has PACKAGE VERSION: Returns true if the archive has this version of the package.
archive_has() {
	apt-cache "${apt[@]}" madison "$1" 2>/dev/null |
		awk -F' *[|] *' -v v="$2" '$2 == v { f = 1 } END { exit !f }'
}

# complete RELEASE: Prints the package version if the archive has image, modules, headers and source
# of the release.
complete() {
	local rel=$1 version series
	series=$(sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$rel")
	version=$(apt-cache "${apt[@]}" madison "linux-binary-unsigned-$rel" |
		awk -F' *[|] *' 'NR == 1 { print $2 }')
	[ -n "$version" ] && archive_has "linux-modules-$rel" "$version" &&
		archive_has "linux-headers-$rel" "$version" &&
		archive_has "linux-source-$series" "$version" && echo "$version"
}

# fetch RELEASE PACKAGE=VERSION DIR: Fetches one package and unpacks it into DIR.
fetch() {
	local work=$base/$1/download deb
	rm -rf "$work"
	mkdir -p "$work" "$3"
	(
		cd "$work" &&
			run_logged "kernel: download ${2%%=*}" "$base/$1/log/download.log" apt-get "${apt[@]}" \
				download "$2"
	)
	deb=("$work"/*.deb)
	dpkg-deb -x "${deb[0]}" "$3"
	rm -rf "$work"
}

headers_of() {
	echo "$base/$1/headers/usr/src/linux-headers-$1"
}

fetch_headers() {
	[ -d "$base/$1/headers" ] && return
	rm -rf "$base/$1/headers.tmp"
	fetch "$1" "linux-headers-$1=$2" "$base/$1/headers.tmp"
	publish "$base/$1/headers.tmp" "$base/$1/headers"
}

choose() {
	local releases rel series version
	run_logged "kernel: read the archive's index" "$NRS_CACHE/log/apt-update.log" apt-get \
		"${apt[@]}" update
	releases=$(apt-cache "${apt[@]}" pkgnames linux-binary-unsigned- |
		sed -n "s/^linux-binary-unsigned-\(.*$suffix\)$/\1/p" | sort -rV)
	for series in $series_list; do
		for rel in $releases; do
			case $rel in "$series".* | "$series"[!0-9]*) ;; *) continue ;; esac
			if version=$(complete "$rel"); then
				log "kernel: $rel ($version): newest point release of $series, a tested series," \
					"with image, modules, headers and source"
				fetch_headers "$rel" "$version"
				chosen=$rel chosen_version=$version
				return
			fi
			log "kernel: $rel passed over:" \
				"image, modules, headers or source of one version are not all there"
		done
		log "kernel: nothing usable of series $series in the archive"
	done
	[ "$current" = "$base/current" ] ||
		die "no kernel of series $series_list in trixie, trixie-updates and trixie-backports"
	for rel in $releases; do
		version=$(complete "$rel") || continue
		fetch_headers "$rel" "$version"
		if grep -qx CONFIG_RUST=y "$(headers_of "$rel")/.config"; then
			log "kernel: $rel ($version): UNTESTED, taken because none of the tested series" \
				"($series_list) is left and it has CONFIG_RUST=y"
			chosen=$rel chosen_version=$version
			return
		fi
		rm -rf "${base:?}/$rel"
	done
	die "no kernel found. Looked in trixie, trixie-updates and trixie-backports for" \
		"linux-binary-unsigned-*$suffix with modules, headers and source," \
		"series $series_list first, then any with CONFIG_RUST=y; seen: ${releases:-none}"
}

if [ -f "$current" ] && [ -z "$refresh" ]; then
	chosen=$(cat "$current")
	chosen_version=$(cat "$base/$chosen/version")
else
	choose
fi
k=$base/$chosen
stamp "$k/version" "$chosen_version"
stamp "$current" "$chosen"

# --- Unpack ---------------------------------------------------------------------------------------
if [ ! -d "$k/source" ]; then
	series=$(sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$chosen")
	rm -rf "$k/source.tmp" "$k/source.deb.tmp"
	fetch "$chosen" "linux-source-$series=$chosen_version" "$k/source.deb.tmp"
	mkdir "$k/source.tmp"
	run_logged "kernel: unpack the source" "$k/log/unpack.log" \
		tar -C "$k/source.tmp" --strip-components=1 \
		-xJf "$k/source.deb.tmp/usr/src/linux-source-$series.tar.xz"
	rm -rf "$k/source.deb.tmp"
	publish "$k/source.tmp" "$k/source"
fi
if [ ! -d "$k/image" ]; then
	rm -rf "$k/image.tmp"
	fetch "$chosen" "linux-binary-unsigned-$chosen=$chosen_version" "$k/image.tmp"
	fetch "$chosen" "linux-modules-$chosen=$chosen_version" "$k/image.tmp"
	if archive_has "linux-base-$chosen" "$chosen_version"; then
		fetch "$chosen" "linux-base-$chosen=$chosen_version" "$k/image.tmp"
	fi
	[ -e "$k/image.tmp/lib" ] || ln -s usr/lib "$k/image.tmp/lib"
	depmod -b "$k/image.tmp" "$chosen"
	vmlinuz=$(find "$k/image.tmp" -name "vmlinuz*" -type f | head -n 1)
	[ -n "$vmlinuz" ] || die "no vmlinuz in the packages of $chosen"
	cp "$vmlinuz" "$k/vmlinuz"
	publish "$k/image.tmp" "$k/image"
fi

# --- Rust metadata --------------------------------------------------------------------------------
toolchain=$(rustc --version && bindgen --version && gcc --version | head -n 1 &&
	clang --version | head -n 1)
# The debug kernel's build depends on this key too, and has its own metadata.
key=$(printf '%s\n' "$chosen_version" "$toolchain" | hash_of)
if stamp_is "$k/build.stamp" "$key" && stamp_is "$k/metadata.stamp" "$metadata"; then
	touch "$k/build.stamp"
	exit
fi
rm -f "$k/build.stamp"
rm -rf "$k/build"
mkdir "$k/build"
headers=$(headers_of "$chosen")
run_logged "kernel: Rust metadata of $chosen (about 2 minutes on 2 cores)" "$k/log/prepare.log" \
	"$NRS_SCRIPTS/rust-metadata.sh" "$chosen" "$headers" "$k/source" "$k/build"
stamp "$k/metadata.stamp" "$metadata"
stamp "$k/build.stamp" "$key"
log "kernel: $chosen ready in $k"
