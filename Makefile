# SPDX-License-Identifier: GPL-2.0-only
# `make` lists the targets. The work is done in scripts/ and tests/, where each script documents
# itself with --help.

NRS_CACHE ?= $(HOME)/.cache/nrs
export NRS_CACHE

.PHONY: help setup build deb deb-source deb-test test test-long soak fuzz demo \
	cluster lustre vm bench bench-vm compare results sim \
	findings clean distclean

help:      ## list these targets (default)
	@echo "nrs: a network request scheduler for Linux storage servers"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Builds go to build/; what is downloaded or slow to make is kept in $(NRS_CACHE)."

setup:     ## get the toolchain and the stock kernel, build its Rust metadata; other targets run it
	scripts/root.sh
	scripts/kernel.sh
	scripts/fio.sh

build:     ## build nrs.ko for the stock kernel: build/stock/nrs.ko
	scripts/build-module.sh stock

deb:       ## build the Debian packages nrs, nrs-agent and nrs-dkms: build/deb/*.deb
	scripts/deb.sh

deb-source: ## build the source package, with all crates: build/deb/nrs_VERSION.dsc
	scripts/deb.sh --source

deb-test:  ## install, load, upgrade and remove the packages in a temporary Debian root
	scripts/deb-test.sh

test:      ## check the sources and run the tests, on this host and in virtual machines
	tests/run.sh

test-long: ## run all checks of all tests; ROUNDS=N repeats the virtual machines
	tests/run.sh --long

soak:      ## mixed stress test on the debug kernel, with fault injection: 10 minutes, or MINUTES=N
	scripts/soak.sh --minutes $(or $(MINUTES),10)

fuzz:      ## fuzz each parser and wire format for a minute, or SECONDS=N
	scripts/fuzz.sh all $(or $(SECONDS),60)

demo:      ## compare fifo and fairshare for two users on one device: a table and demo.svg
	scripts/demo.sh

cluster:   ## test two servers with agents in two virtual machines: a table and cluster.svg
	scripts/cluster.sh

lustre:    ## build the policies for a Lustre server: make lustre LUSTRE_SRC=DIR (configured source)
	scripts/lustre.sh $(LUSTRE_SRC)

vm:        ## start a shell in a virtual machine with nrs.ko loaded; KERNEL=debug for the other
	scripts/vng.sh --kernel $(or $(KERNEL),stock)

bench:     ## measure nanoseconds per decision and bytes per class of every policy on this host
	scripts/bench.sh

bench-vm:  ## measure instructions per request in a VM, against dm-linear, mq-deadline and BFQ
	scripts/bench-vm.sh

compare:   ## compare nrs with none, mq-deadline, kyber, BFQ, io.max, io.cost in VMs
	scripts/compare.sh

results:   ## measure all figures of the manual and write them into the pages
	scripts/results.sh

sim:       ## simulate servers: ThemisIO's experiments, fairness over many servers, disks
	scripts/sim.sh --all

findings:  ## run what surprises in the things nrs stands on: a table, or NAMES='A B' only
	scripts/findings.sh $(NAMES)

clean:     ## remove all build results of this tree
	rm -rf build rust/host/target demo.svg cluster.svg

distclean: clean ## clean, and remove the downloaded toolchain and kernels
	@[ ! -e "$(NRS_CACHE)" ] || [ -d "$(NRS_CACHE)/log" ] || \
		{ echo "$(NRS_CACHE) has no log directory: not removed"; exit 1; }
	rm -rf --one-file-system "$(NRS_CACHE)"
