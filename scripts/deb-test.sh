#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/deb-test.sh [PART...]
#
# Builds the Debian packages and tests them in a minimal Debian 13 root under a temporary overlay:
# installation with apt, a kernel without its source, DKMS for kernels of all supported series, the
# built module in the virtual machine, removal and purge. Then builds the packages from the source
# package, without network. Ends with the line "N passed, N failed"; logs are in build/deb-test. The
# root and the downloads of apt (800 MB) are kept in $NRS_CACHE/deb-test. Takes half an hour on two
# CPUs. PART selects parts: contents, toolchain (installation to purge over the toolchain root, no
# module), module (the same in the minimal root), source.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$NRS_TOP/tests/vm/lib.sh"

parts=(contents toolchain module source)
case ${1:-} in
--help | -h) usage && exit ;;
'') ;;
*)
	for part; do
		case " ${parts[*]} " in *" $part "*) ;; *) die "unknown part '$part', see --help" ;; esac
	done
	parts=("$@")
	;;
esac
[ "$(id -u)" = 0 ] || die "mounting an overlay needs root privileges"

# In separate mount and process namespaces: all mounts vanish with the namespace.
if [ -z "${NRS_DEB_TEST:-}" ]; then
	"$NRS_SCRIPTS/deb.sh"
	"$NRS_SCRIPTS/kernel.sh"
	NRS_DEB_TEST=1 exec unshare --mount --propagation private "$0" "$@"
fi

cache=$NRS_CACHE/deb-test
logs=$NRS_TOP/build/deb-test
debs=$NRS_TOP/build/deb
work=$cache/work
merged=$work/merged
mkdir -p "$cache/archives/partial"
lock deb-test/run
rm -rf "$logs"
mkdir -p "$logs"
vars=$("$NRS_SCRIPTS/kernel.sh" --print)
eval "$vars"

# over LOWER: Mounts a fresh overlay over LOWER (directories, joined by colons), in which inside
# runs from now on.
over() {
	! mountpoint -q "$merged" || umount "$merged"
	rm -rf --one-file-system "$work"
	mkdir -p "$work/upper" "$work/work" "$merged"
	mount -t overlay overlay -o "lowerdir=$1,upperdir=$work/upper,workdir=$work/work" "$merged"
}

# inside CMD...: Runs CMD in the overlay.
inside() {
	NRS_ROOT=$merged DEBIAN_FRONTEND=noninteractive "$NRS_SCRIPTS/in-root.sh" --rw "$@"
}

# logged NAME CMD...: Runs CMD with its output in the log NAME only.
logged() {
	local name=$1
	shift
	"$@" >"$logs/$name.log" 2>&1 </dev/null || { tail -n 10 "$logs/$name.log" && return 1; }
}

apt=(apt-get -q -y -o "Dir::Cache::archives=$cache/archives" -o APT::Sandbox::User=root
	-o APT::Keep-Downloaded-Packages=true
	-o DPkg::Options::=--force-unsafe-io)

# install LOG PACKAGE...: Installs the packages with their dependencies, but without recommended
# packages.
install() {
	logged "$1" inside "${apt[@]}" --no-install-recommends install "${@:2}"
}

nrs=$(echo "$debs"/nrs_*_amd64.deb) agent=$(echo "$debs"/nrs-agent_*_amd64.deb) \
	dkms=$(echo "$debs"/nrs-dkms_*_all.deb)
packages=("$nrs" "$agent" "$dkms")
version=$(dpkg-deb -f "$nrs" Version)
unpacked=$logs/unpacked
for deb in "$nrs" "$agent"; do dpkg-deb -x "$deb" "$unpacked"; done

# nothing CMD...: Fails if CMD fails or prints anything.
nothing() {
	local shown
	shown=$("$@") || return
	[ -z "$shown" ] || { echo "$shown" && return 1; }
}
seconds() {
	echo "# $1: $((SECONDS - since)) s"
}

# --- Contents of the packages ---------------------------------------------------------------------
# has DEB PATH: Returns true if the package contains the file.
has() {
	dpkg-deb -c "$1" | awk -v p=".$2" '{ sub(/ -> .*/, "") } $NF == p { f = 1 } END { exit !f }' ||
		{ echo "no $2" && return 1; }
}
no_host() {
	dpkg-deb -c "$dkms" | awk '$6 ~ "/rust/host|[.]k?o$|/target/"'
}
paths() {
	find "$unpacked" -type f -exec awk -v a="$NRS_TOP" -v b="$NRS_CACHE" -v c="$HOME/" \
		'index($0, a) || index($0, b) || index($0, c) { print FILENAME; nextfile }' {} +
}
# libraries PROGRAM: Prints the libraries of the program.
libraries() {
	"$NRS_SCRIPTS/in-root.sh" readelf -d "$unpacked/usr/bin/$1" |
		sed -n '/NEEDED/s/.*\[\(.*\)\]/\1/p'
}
lintian() {
	local failed deb
	"$NRS_SCRIPTS/in-root.sh" lintian --fail-on error --show-overrides \
		"${packages[@]}" >"$logs/lintian.log" 2>&1 || failed=1
	grep -E '^[EW]:' "$logs/lintian.log" || true
	# lintian also succeeds without packages; each of these two packages has an overridden tag.
	for deb in nrs nrs-agent; do
		grep -q "^O: $deb: " "$logs/lintian.log" || { echo "$deb was not checked" && failed=1; }
	done
	[ -z "${failed:-}" ]
}

contents() {
	local file
	for file in usr/bin/nrsctl \
		usr/share/man/man{1/nrsctl.1,4/nrs.4,4/nrs-control.4,5/nrs.toml.5,8/dm-nrs.8}.gz \
		usr/share/bash-completion/completions/nrsctl usr/include/nrs/nrs.h \
		usr/lib/systemd/system/nrs.service usr/lib/systemd/system/nrs-net.service \
		usr/share/zsh/vendor-completions/_nrsctl usr/share/doc/nrs/README.md \
		usr/share/doc/nrs/Documentation/tutorial.md \
		usr/share/doc/nrs/Documentation/grafana-nrs.json usr/share/doc/nrs/CRATES.gz etc/nrs/ \
		usr/share/doc/nrs/Documentation/examples/{60-nrs-scheduler.rules,alerts.yml} \
		usr/lib/systemd/system/nrs-weights@.service \
		usr/lib/systemd/system/nrs-exporter.service usr/lib/sysusers.d/nrs.conf \
		usr/lib/udev/rules.d/60-nrs.rules; do
		check "nrs has /$file" has "$nrs" "/$file"
	done
	for file in usr/bin/nrs-agent usr/share/man/man8/nrs-agent.8.gz \
		usr/lib/systemd/system/nrs-agent.service etc/nrs/agent/ \
		usr/share/doc/nrs-agent/CRATES.gz usr/share/doc/nrs-agent/examples/agent.toml; do
		check "nrs-agent has /$file" has "$agent" "/$file"
	done
	for file in dkms.conf Kbuild rust/nrs.rs rust/sys/shim.c include/uapi/nrs.h dkms/module.sh \
		dkms/rust-metadata.sh; do
		check "nrs-dkms has $file" has "$dkms" "/usr/src/nrs-$version/$file"
	done
	check "nrs-dkms contains no host crates and no build results" nothing no_host
	check "nrs and nrs-agent contain no path of the build machine" nothing paths
	check "nrsctl is linked statically" nothing libraries nrsctl
	check "nrsctl runs" "$unpacked/usr/bin/nrsctl" --version
	check_eq "nrs-agent is linked to the C library" \
		"ld-linux-x86-64.so.2 libc.so.6 libgcc_s.so.1 libm.so.6" \
		"$(libraries nrs-agent | sort | xargs)"
	check "lintian finds no error" lintian
	echo "# lintian: $(grep -c '^W:' "$logs/lintian.log" || true) warnings," \
		"$(grep -c '^O:' "$logs/lintian.log" || true) overridden"
}

# --- Installation and removal ---------------------------------------------------------------------
# files: Lists installed files, except those of apt, dpkg and the machine owner's key.
files() {
	(
		cd "$merged" &&
			find . -xdev \( -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log -o \
				-path ./var/lib/apt -o -path ./tmp -o -path ./run -o -path ./root -o -path ./dev \
				-o -path ./proc -o -path ./sys -o -path ./etc/ld.so.cache -o -path '*/modules.*' \
				-o -path './var/lib/dkms/mok.*' -o \
				-path ./var/lib/systemd/deb-systemd-helper-enabled \) -prune -o -print | sort
	)
}

# gone: Verifies that after a purge only the previous files, files of installed packages and the
# administrator's files exist.
gone() {
	logged purge inside "${apt[@]}" purge nrs nrs-agent nrs-dkms || return
	keep_configuration || return
	files |
		grep -vxF -e ./etc/nrs -e ./etc/nrs/mine.toml -e ./etc/nrs/agent \
			-e ./etc/nrs/agent/secret >"$logs/files-after"
	sed 's/^/./' "$merged"/var/lib/dpkg/info/*.list | sort -u - "$logs/files-before" \
		>"$logs/files-known"
	nothing comm -13 "$logs/files-known" "$logs/files-after"
}

# removed: Verifies that only the configuration is left.
removed() {
	logged remove inside "${apt[@]}" remove nrs nrs-agent nrs-dkms || return
	[ ! -e "$merged/usr/bin/nrsctl" ] && [ ! -e "$merged/usr/bin/nrs-agent" ] &&
		[ ! -e "$merged/usr/src/nrs-$version" ] || return
	[ ! -d "$merged/usr/lib/modules" ] || nothing find "$merged/usr/lib/modules" -name 'nrs.ko*'
}

# later: Builds the packages with a later version in $logs/later.
later() {
	local deb dir
	for deb in "${packages[@]}"; do
		dir=$logs/later/$(basename "$deb" .deb)
		mkdir -p "$logs/later"
		dpkg-deb -R "$deb" "$dir"
		sed -i "s/${version//./\\.}/$version+1/g" "$dir"/DEBIAN/*
		rm -f "$dir/DEBIAN/md5sums"
		if [ -d "$dir/usr/src" ]; then
			mv "$dir/usr/src/nrs-$version" "$dir/usr/src/nrs-$version+1"
			sed -i "s/${version//./\\.}/$version+1/g" "$dir/usr/src/nrs-$version+1/dkms.conf"
		fi
		dpkg-deb --root-owner-group -b "$dir" "$dir.deb"
	done >/dev/null
}

# upgraded: Verifies that the later version is installed, the earlier one is gone, and the
# configuration is unchanged.
upgraded() {
	later || return
	install upgrade "$logs"/later/*.deb || return
	inside dkms status >"$logs/status"
	grep -F "nrs/$version+1" "$logs/status" || return
	if grep -E "nrs/$version[^+]" "$logs/status"; then return 1; fi
	[ ! -e "$merged/usr/src/nrs-$version" ] || return
	keep_configuration
}

# configure: Creates the files of an administrator, and the state of an agent.
configure() {
	echo '# mine' >"$merged/etc/nrs/mine.toml"
	echo mine >"$merged/etc/nrs/agent/secret"
	mkdir "$merged/var/lib/nrs-agent"
	echo 1 >"$merged/var/lib/nrs-agent/epoch"
}

keep_configuration() {
	grep -q mine "$merged/etc/nrs/mine.toml" && grep -q mine "$merged/etc/nrs/agent/secret"
}

# toolchain: Tests installation and removal over the toolchain root, which has the dependencies of
# the packages.
toolchain() {
	local root line
	root=$("$NRS_SCRIPTS/root.sh" --print)
	if [ "$root" = / ]; then
		echo "# this host serves as the root, so nothing is installed:" \
			"make deb-test does that in a root of its own"
		return
	fi
	over "$root"
	files >"$logs/files-before"
	check "installation over the toolchain root" install install "${packages[@]}"
	check "the unit is enabled" sh -c "readlink $merged/etc/systemd/system/*.wants/nrs.service"
	check "the unit of the agent is disabled" nothing find "$merged/etc/systemd/system" \
		-name nrs-agent.service
	check "debian/tests/installed passes" inside "$NRS_TOP/debian/tests/installed"
	configure
	check "an upgrade" upgraded
	check "removal" removed
	check "removal leaves the configuration" keep_configuration
	check "purge leaves only the configuration" gone
	# Allows an update of the certificates to be installed.
	check "certificates can be regenerated" logged certificates inside \
		update-ca-certificates --fresh
	# No container can run here. Its line that installs packages can run; the packages are installed
	# already.
	cp "$NRS_SCRIPTS/packages.txt" "$merged/packages.txt"
	line=$(sed -n 's/^RUN \(apt-get update .*\)/\1/p' "$NRS_TOP/Containerfile")
	check "the RUN line of the Containerfile that installs packages" logged container inside sh -c \
		"${line:-false}"
}

# minimal: Mounts the overlay over a minimal root and a layer with the dependencies of the packages;
# each is made when it is missing or outdated.
minimal() {
	local key depends deb
	key=$(hash_of <<<"$(trixie_sources)")
	if ! stamp_is "$cache/base.stamp" "$key"; then
		rm -rf --one-file-system "$cache/base" "$cache/depends"
		debian_root deb-test "$logs/base.log" "$cache/base" ca-certificates,debian-archive-keyring
		stamp "$cache/base.stamp" "$key"
	fi
	depends=$(for deb in "${packages[@]}"; do dpkg-deb -f "$deb" Depends; done | grep . |
		paste -sd,)
	key=$(hash_of <<<"$key $depends")
	if ! stamp_is "$cache/depends.stamp" "$key"; then
		over "$cache/base"
		log "deb-test: installing the dependencies of the packages"
		logged update inside "${apt[@]}" update
		logged depends inside "${apt[@]}" --no-install-recommends satisfy "$depends"
		umount "$merged"
		publish "$work/upper" "$cache/depends"
		stamp "$cache/depends.stamp" "$key"
	fi
	over "$cache/depends:$cache/base"
	logged update inside "${apt[@]}" update
}

# --- The module -----------------------------------------------------------------------------------
# series_of RELEASE: Prints the series of the release.
series_of() {
	sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$1"
}
# state RELEASE: Prints the status that DKMS reports for the module and that kernel.
state() {
	inside dkms status -m nrs -v "$version" -k "$1"
}
is_installed() {
	state "$1" | grep -q ': installed'
}

# made_for RELEASE: Verifies that the module is installed for that kernel, has its vermagic, and is
# signed. (Without the kernel's image modprobe has no index.)
made_for() {
	local file
	is_installed "$1" || { echo "dkms: $(state "$1")" && return 1; }
	file=$(cd "$merged" && find "usr/lib/modules/$1/updates" -name 'nrs.ko*')
	inside modinfo -F vermagic "/$file" | grep -qF "$1 " &&
		inside modinfo -F signer "/$file" | grep -q .
}
nothing_yet() {
	if is_installed "$new" || is_installed "$old"; then return 1; fi
}
# exported_symbols: Verifies that the kept symbols are those that the module exports.
exported_symbols() {
	diff <(sed -n 's/^EXPORT_SYMBOL_GPL(\(.*\));$/\1/p' "$NRS_TOP/rust/sys/capi.c" | sort) \
		<(cut -f 2 "$merged/var/lib/nrs/kernels/$new/Module.symvers" | sort)
}
again() {
	logged rebuild inside sh \
		-c "dkms remove -m nrs -v $version -k $new && dkms autoinstall -k $new" && made_for "$new"
}
no_kernel() {
	if inside "/usr/src/nrs-$version/dkms/module.sh" \
		--check 7.99.0-none >"$logs/none.log" 2>&1; then
		return 1
	fi
	[ "$(wc -l <"$logs/none.log")" = 1 ] &&
		grep -F 'apt install linux-headers-7.99.0-none' "$logs/none.log"
}
load() {
	local file
	file=$(find "$merged/usr/lib/modules/$new/updates" -name 'nrs.ko*') || return
	rm -f "$logs/nrs.ko"
	case $file in
	*.xz) xz -dc "$file" ;;
	*.zst) zstd -qdc "$file" ;;
	*) cat "$file" ;;
	esac >"$logs/nrs.ko"
	logged vm "$NRS_SCRIPTS/vm.sh" --kernel stock --name deb-test --module "$logs/nrs.ko" \
		--file "$unpacked/usr/bin/nrsctl:/bin/nrsctl" \
		--file "$NRS_TOP/debian/tests/module:/bin/packaged" -- packaged.sh
}

module() {
	local supported pattern releases new new_version series other other_version old error since
	minimal
	# Kernels: the stock kernel; a kernel without "cloud", of another supported series if the
	# archive has one; and a kernel of an unsupported series.
	new=$NRS_KREL new_version=$(cat "$NRS_CACHE/kernel/$NRS_KREL/version")
	series=$(series_of "$new")
	supported=$(supported_series)
	pattern="^(${supported// /|})[^0-9]"
	releases=$(inside apt-cache pkgnames linux-headers- |
		sed -n 's/^linux-headers-\(.*-amd64\)$/\1/p' | sort -V)
	other=$(grep -E "$pattern" <<<"$releases" | grep -v "^$series[^0-9]" |
		grep -vE -- '-(cloud|rt)-' | tail -n 1) || other=${new%-cloud-amd64}-amd64
	other_version=$(inside apt-cache show --no-all-versions "linux-headers-$other" |
		sed -n 's/^Version: //p')
	old=$(grep -vE "$pattern" <<<"$releases" | grep -- -cloud- | tail -n 1)
	echo "# kernels: $new ($new_version) and $other ($other_version), unsupported: $old"

	since=$SECONDS
	# The headers of the unsupported series bring a kernel, whose installation makes further files.
	check "headers of $new, without its source, and of $old" install headers \
		"linux-headers-$new=$new_version" "linux-headers-$old"
	files >"$logs/files-before"
	check "installation in a minimal system" install install "${packages[@]}"
	error="nrs: error: no module for kernel"
	check "a kernel without its source is skipped, and one line names the missing package" grep -F \
		"$error $new: its source is missing: apt install linux-source-$series=$new_version" \
		"$logs/install.log"
	check "a kernel of an unsupported series is skipped, and one line states the reason" grep -F \
		"$error $old: unsupported series (supported: ${supported// / and }" "$logs/install.log"
	check "no module is built for these kernels" nothing_yet
	seconds "installation without the source of a kernel"

	since=$SECONDS
	check "installation of the source" install source "linux-source-$series=$new_version"
	check "the module for $new is installed" made_for "$new"
	check "its symbols are kept for modules that call nrs" exported_symbols
	seconds "source, metadata and module of $new"
	since=$SECONDS
	check "installation of another kernel" install other "linux-headers-$other=$other_version" \
		"linux-source-$(series_of "$other")=$other_version"
	check "the module for $other is installed" made_for "$other"
	check "the module for $new remains installed" made_for "$new"
	seconds "metadata and module of $other"
	since=$SECONDS
	check "the headers are installed again" logged reinstall inside "${apt[@]}" install \
		--reinstall "linux-headers-$new"
	check "the module for $new remains installed" made_for "$new"
	check "the module is rebuilt with the kept metadata" again
	seconds "module alone"
	check "a kernel without headers: one line names the missing package" no_kernel

	since=$SECONDS
	check "the packaged module works in the virtual machine" load
	seconds "virtual machine"

	configure
	check "removal" removed
	check "removal leaves the configuration" keep_configuration
	check "purge leaves only the configuration" gone
}

# --- The source package ---------------------------------------------------------------------------
offline() {
	logged offline inside env -u CARGO_HOME -u CARGO_TARGET_DIR unshare --net sh -ec "
		cd /srv
		dpkg-source --extract $debs/nrs_$version.dsc nrs
		cd nrs
		dpkg-buildpackage --build=binary --no-sign" || return
	dpkg-deb -x "$merged/srv/nrs_${version}_amd64.deb" "$logs/offline"
	"$logs/offline/usr/bin/nrsctl" --version && [ -e "$merged/srv/nrs-agent_${version}_amd64.deb" ]
}

source_package() {
	local since=$SECONDS
	check "the source package" logged source "$NRS_SCRIPTS/deb.sh" --source
	minimal
	check "installation of the build dependencies" logged build-dep inside "${apt[@]}" \
		--no-install-recommends build-dep "$debs/nrs_$version.dsc"
	check "the packages are built from the source package without network" offline
	check "lintian finds no error in the source package" logged lintian-source \
		"$NRS_SCRIPTS/in-root.sh" lintian --fail-on error "$debs/nrs_$version.dsc"
	seconds "source package"
}

# In braces, so that the shell reads the whole file before it runs any of it; later changes to the
# file have no effect.
{
for part in "${parts[@]}"; do
	case $part in source) source_package ;; *) "$part" ;; esac
done
! mountpoint -q "$merged" || umount "$merged"
rm -rf --one-file-system "$work"
summary
exit
}
