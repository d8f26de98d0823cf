// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * nbdkit filter: nrs schedules the requests of all clients, with any plugin. See
 * Documentation/nbdkit.md for the commands.
 *
 *   thread of nbdkit:  submit, wait ────────────────▶ serve by the plugin, complete ──▶ reply
 *                         │                ▲
 *                      /dev/nrs ──▶ reader thread
 *
 * The cookie of a request is the address of the semaphore for which its thread waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nbdkit-filter.h>
#include "nrs.h"

#define DEVICE "/dev/nrs"

/* Operation codes, the same as nrs uses for requests of block devices. */
enum { OST_READ = 3, OST_WRITE = 4, OST_PUNCH = 10, OST_SYNC = 16 };

static struct nrs_attach attach = {
	.size = sizeof(attach), .version = NRS_VERSION, .service = "nbd", .client = "nbdkit",
};
static bool fall_back;	/* serve without nrs if the device does not exist */
static int nrs = -1;	/* -1: requests are not scheduled */
static pthread_t reader;
static bool reading;	/* the reader thread exists */

/* Copies a name; returns -1 if the name is longer than 31 bytes. */
static int set_name(char name[32], const char *key, const char *value)
{
	if (strlen(value) > 31) {
		nbdkit_error("%s: '%s' has more than 31 bytes", key, value);
		return -1;
	}
	strncpy(name, value, 32);
	return 0;
}

static int nrs_config(nbdkit_next_config *next, nbdkit_backend *nxdata, const char *key,
		      const char *value)
{
	if (!strcmp(key, "nrs-service"))
		return set_name(attach.service, key, value);
	if (!strcmp(key, "nrs-name"))
		return set_name(attach.client, key, value);
	if (!strcmp(key, "nrs-fallback")) {
		int on = nbdkit_parse_bool(value);

		fall_back = on == 1;
		return on < 0 ? -1 : 0;
	}
	return next(nxdata, key, value);
}

/* Attaches to the service before nbdkit forks, so that errors go to the terminal. */
static int nrs_get_ready(int thread_model)
{
	(void)thread_model;
	nrs = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (nrs < 0 && errno == ENOENT && fall_back) {
		nbdkit_debug("%s does not exist: requests are served as they come", DEVICE);
		return 0;
	}
	if (nrs < 0) {
		nbdkit_error("%s: %m (load the module nrs, or set nrs-fallback=true)", DEVICE);
		return -1;
	}
	if (ioctl(nrs, NRS_IOC_ATTACH, &attach) < 0) {
		nbdkit_error("service '%s' of nrs: %m", attach.service);
		return -1;
	}
	return 0;
}

/* Wakes the threads of released requests. Without timeouts there are no other records. */
static void *read_released(void *unused)
{
	struct nrs_released released[64];

	(void)unused;
	for (;;) {
		ssize_t length = read(nrs, released, sizeof(released));

		if (length < 0 && errno != EINTR) {
			/* Threads would wait forever. Exiting closes the connections; clients may reconnect. */
			nbdkit_error("read of %s: %m", DEVICE);
			_exit(EXIT_FAILURE);
		}
		for (ssize_t i = 0; i < length / (ssize_t)sizeof(*released); i++)
			sem_post((sem_t *)(uintptr_t)released[i].cookie);
	}
}

static int nrs_after_fork(nbdkit_backend *backend)
{
	(void)backend;
	if (nrs < 0)
		return 0;
	errno = pthread_create(&reader, NULL, read_released, NULL);
	if (errno) {
		nbdkit_error("thread: %m");
		return -1;
	}
	reading = true;
	return 0;
}

static void nrs_cleanup(nbdkit_backend *backend)
{
	(void)backend;
	if (reading) {
		pthread_cancel(reader);
		pthread_join(reader, NULL);
	}
	if (nrs >= 0)
		close(nrs);
}

/* Fills in the address, or the uid and gid, of the client of a connection, if known. */
static void identify(struct nrs_request *request)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_storage all;
	} peer;
	socklen_t length = sizeof(peer);
	const void *address = NULL;

	if (nbdkit_peer_name(&peer.any, &length) < 0)
		return;
	if (peer.any.sa_family == AF_INET) {
		address = &peer.v4.sin_addr;
		request->address_len = 4;
	} else if (peer.any.sa_family == AF_INET6) {
		bool mapped = IN6_IS_ADDR_V4MAPPED(&peer.v6.sin6_addr);

		address = &peer.v6.sin6_addr.s6_addr[mapped ? 12 : 0];
		request->address_len = mapped ? 4 : 16;
	} else if (peer.any.sa_family == AF_UNIX) {
		request->uid = nbdkit_peer_uid();
		request->gid = nbdkit_peer_gid();
	}
	if (address) {
		request->net = NRS_NET_TCP;
		memcpy(request->address, address, request->address_len);
	}
}

/* Creates the handle of a connection: the fields that all requests of the connection share. */
static void *nrs_open(nbdkit_next_open *next, nbdkit_context *context, int readonly,
		      const char *exportname, int is_tls)
{
	struct nrs_request *request;

	(void)is_tls;
	if (next(context, readonly, exportname) < 0)
		return NULL;
	request = calloc(1, sizeof(*request));
	if (!request) {
		nbdkit_error("no memory for a connection");
		return NULL;
	}
	request->header.kind = NRS_TYPE_REQUEST;
	request->header.size = sizeof(*request);
	request->uid = request->gid = request->projid = request->nodemap = NRS_ID_ABSENT;
	strncpy((char *)request->jobid, exportname, sizeof(request->jobid) - 1);
	identify(request);
	return request;
}

/* Submits a request and waits for its release. A discard moves no data and costs 0 bytes. */
static int enter(const struct nrs_request *connection, sem_t *released, uint32_t opcode,
		 uint32_t count, uint64_t offset, int *err)
{
	struct nrs_request request = *connection;
	ssize_t written;

	if (nrs < 0)
		return 0;
	sem_init(released, 0, 0);
	request.cookie = (uintptr_t)released;
	request.opcode = opcode;
	request.offset = offset;
	request.length = count;
	if (opcode == OST_PUNCH)
		request.header.flags = NRS_REQUEST_CHARGE;
	do
		written = write(nrs, &request, sizeof(request));
	while (written < 0 && errno == EINTR);
	if (written < 0) {
		*err = errno;
		nbdkit_error("submit to %s: %m", DEVICE);
		return -1;
	}
	while (sem_wait(released) < 0)
		;
	return 0;
}

/* Reports the completion of a request; returns the result. */
static int leave(sem_t *released, uint32_t count, int result, int *err)
{
	struct nrs_completion completion = {
		.header = { NRS_TYPE_COMPLETION, sizeof(completion), 0 },
		.cookie = (uintptr_t)released,
		.status = result < 0 ? (*err ? *err : EIO) : 0,
		.bytes = result < 0 ? 0 : count,
	};

	if (nrs >= 0 && write(nrs, &completion, sizeof(completion)) < 0)
		nbdkit_error("complete at %s: %m", DEVICE);
	return result;
}

/* Waits for the release of a request, calls the plugin, and reports the completion. */
#define SCHEDULED(opcode, count, offset, serve)                                  \
	do {                                                                     \
		sem_t released;                                                  \
		if (enter(handle, &released, opcode, count, offset, err) < 0)    \
			return -1;                                               \
		return leave(&released, count, serve, err);                      \
	} while (0)

static int nrs_pread(nbdkit_next *next, void *handle, void *buf, uint32_t count, uint64_t offset,
		     uint32_t flags, int *err)
{
	SCHEDULED(OST_READ, count, offset, next->pread(next, buf, count, offset, flags, err));
}

static int nrs_pwrite(nbdkit_next *next, void *handle, const void *buf, uint32_t count,
		      uint64_t offset, uint32_t flags, int *err)
{
	SCHEDULED(OST_WRITE, count, offset, next->pwrite(next, buf, count, offset, flags, err));
}

static int nrs_flush(nbdkit_next *next, void *handle, uint32_t flags, int *err)
{
	SCHEDULED(OST_SYNC, 0, 0, next->flush(next, flags, err));
}

static int nrs_trim(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset,
		    uint32_t flags, int *err)
{
	SCHEDULED(OST_PUNCH, count, offset, next->trim(next, count, offset, flags, err));
}

static int nrs_zero(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset,
		    uint32_t flags, int *err)
{
	/* Without native zeroing in the plugin, nbdkit writes zeroes. */
	uint32_t opcode = next->can_zero(next) == NBDKIT_ZERO_NATIVE ? OST_PUNCH : OST_WRITE;

	SCHEDULED(opcode, count, offset, next->zero(next, count, offset, flags, err));
}

static int nrs_cache(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset,
		     uint32_t flags, int *err)
{
	SCHEDULED(OST_READ, count, offset, next->cache(next, count, offset, flags, err));
}

static struct nbdkit_filter filter = {
	.name = "nrs",
	.longname = "nbdkit nrs filter",
	.config = nrs_config,
	.config_help = "nrs-service=NAME     Service of nrs (default: nbd).\n"
		       "nrs-name=NAME        Name of this server in statistics (default: nbdkit).\n"
		       "nrs-fallback=BOOL    Serve without nrs where /dev/nrs does not exist.",
	.get_ready = nrs_get_ready,
	.after_fork = nrs_after_fork,
	.cleanup = nrs_cleanup,
	.open = nrs_open,
	.close = free,
	.pread = nrs_pread,
	.pwrite = nrs_pwrite,
	.flush = nrs_flush,
	.trim = nrs_trim,
	.zero = nrs_zero,
	.cache = nrs_cache,
};

NBDKIT_REGISTER_FILTER(filter)
