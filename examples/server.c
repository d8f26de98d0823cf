// SPDX-License-Identifier: MIT OR Apache-2.0
/* Echoes UDP datagrams in the order in which nrs dispatches them. */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "nrs.h"

struct datagram {
	struct sockaddr_in from;
	ssize_t length;
	char data[1500];
};
static int nrs, udp;

/*
 * Passes an early reply on, before the client stops waiting after 20 s: the line "early MS" and the
 * data in one datagram. The client waits until MS milliseconds after it sent the data.
 */
static void extend(struct datagram *d, unsigned int timeout_ms)
{
	char text[20 + sizeof(d->data)];
	int length = snprintf(text, 20, "early %u\n", timeout_ms);

	memcpy(text + length, d->data, d->length);
	sendto(udp, text, length + d->length, 0, (struct sockaddr *)&d->from, sizeof(d->from));
}

/* Answers the datagrams that nrs releases, and passes early replies on. */
static void *serve(void *unused)
{
	/* The cookie follows the header in both records. */
	union {
		struct nrs_header header;
		struct nrs_released released;
		struct nrs_early early;
	} record;

	while (read(nrs, &record, sizeof(record)) > 0) {
		struct datagram *d = (struct datagram *)(uintptr_t)record.released.cookie;
		struct nrs_completion done = { .header = { NRS_TYPE_COMPLETION, sizeof(done), 0 },
					       .cookie = record.released.cookie };

		if (record.header.kind == NRS_TYPE_EARLY)
			extend(d, record.early.timeout_ms);
		if (record.header.kind != NRS_TYPE_RELEASED)
			continue;
		done.bytes = d->length;
		sendto(udp, d->data, d->length, 0, (struct sockaddr *)&d->from, sizeof(d->from));
		if (write(nrs, &done, sizeof(done)) < 0)
			err(1, "completion");
		free(d);
	}
	err(1, "read of /dev/nrs");
	return unused;
}

int main(void)
{
	struct nrs_attach attach = {
		.size = sizeof(attach), .version = NRS_VERSION, .service = "echo",
	};
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(7777) };
	pthread_t thread;

	nrs = open("/dev/nrs", O_RDWR);
	if (nrs < 0 || ioctl(nrs, NRS_IOC_ATTACH, &attach) < 0)
		err(1, "/dev/nrs");
	udp = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(udp, (struct sockaddr *)&here, sizeof(here)) < 0 ||
	    pthread_create(&thread, NULL, serve, NULL))
		err(1, "port 7777");
	for (struct datagram *d; (d = malloc(sizeof(*d)));) {
		socklen_t size = sizeof(d->from);
		struct nrs_request request = {
			.header = { NRS_TYPE_REQUEST, sizeof(request), 0 }, .cookie = (uintptr_t)d,
			.uid = NRS_ID_ABSENT, .gid = NRS_ID_ABSENT, .projid = NRS_ID_ABSENT,
			.nodemap = NRS_ID_ABSENT, .net = NRS_NET_TCP, .address_len = 4,
			.timeout_ms = 20000,
		};

		d->length = recvfrom(udp, d->data, sizeof(d->data), 0, (struct sockaddr *)&d->from, &size);
		if (d->length < 0)
			err(1, "receive");
		request.length = d->length;
		memcpy(request.address, &d->from.sin_addr, 4);
		if (write(nrs, &request, sizeof(request)) < 0)
			err(1, "submit");
	}
	err(1, "memory");
}
